// Stands for the file of the isa, like kg/core/machine.h.
#pragma once
#if defined(KG_ISA_CDNA1) || defined(KG_ISA_CDNA2) || defined(KG_ISA_CDNA3) || defined(KG_ISA_CDNA4)
#include "kg/core/frag_cdna.h"
#elif defined(KG_ISA_RDNA2) || defined(KG_ISA_RDNA3) || defined(KG_ISA_RDNA4)
#include "kg/core/frag_rdna.h"
#elif defined(KG_ISA_SM90)
#include "kg/core/frag_sm90.h"
#else
#error "no fragments for this isa"
#endif
