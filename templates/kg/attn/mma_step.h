// Stands for the file of an AMD isa, like kg/core/machine.h.
#pragma once
#if defined(KG_ISA_CDNA1)
#include "kg/attn/mma_cdna1.h"
#elif defined(KG_ISA_CDNA2) || defined(KG_ISA_CDNA3)
#include "kg/attn/mma_cdna.h"
#elif defined(KG_ISA_CDNA4)
#include "kg/attn/mma_cdna4.h"
#elif defined(KG_ISA_RDNA2)
#include "kg/attn/mma_rdna2.h"
#elif defined(KG_ISA_RDNA3)
#include "kg/attn/mma_rdna3.h"
#elif defined(KG_ISA_RDNA4)
#include "kg/attn/mma_rdna4.h"
#else
#error "no matrix products for this isa"
#endif
