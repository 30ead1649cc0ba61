// Stands for the file of the target, like kg/core/machine.h.
#pragma once
#if defined(KG_ISA_SM90)
#include "kg/indexer/index_lds_nvidia.h"
#elif defined(KG_ISA_CDNA1) || defined(KG_ISA_CDNA2) || defined(KG_ISA_CDNA3) || \
    defined(KG_ISA_CDNA4) || defined(KG_ISA_RDNA2) || defined(KG_ISA_RDNA3) ||   \
    defined(KG_ISA_RDNA4)
#include "kg/indexer/index_lds_amd.h"
#else
#error "no file for this isa"
#endif
