// Stands for the file of the isa, like kg/core/machine.h.
#pragma once
#if defined(KG_ISA_CDNA1)
#include "kg/core/isa_cdna1.h"
#elif defined(KG_ISA_CDNA2)
#include "kg/core/isa_cdna2.h"
#elif defined(KG_ISA_CDNA3)
#include "kg/core/isa_cdna3.h"
#elif defined(KG_ISA_CDNA4)
#include "kg/core/isa_cdna4.h"
#elif defined(KG_ISA_RDNA2)
#include "kg/core/isa_rdna2.h"
#elif defined(KG_ISA_RDNA3)
#include "kg/core/isa_rdna3.h"
#elif defined(KG_ISA_RDNA4)
#include "kg/core/isa_rdna4.h"
#elif defined(KG_ISA_SM90)
#include "kg/core/isa_sm90.h"
#else
#error "no kg/core/isa_*.h for this isa"
#endif
