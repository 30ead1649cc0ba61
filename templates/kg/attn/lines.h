// Stands for the file of the isa, like kg/core/machine.h: how keys and values lie in LDS as lines,
// and are read.
#pragma once
#if defined(KG_ISA_CDNA4)
#include "kg/attn/lines_turned.h"
#elif defined(KG_ISA_RDNA3) || defined(KG_ISA_RDNA4)
#include "kg/attn/lines_dims.h"
#else
#include "kg/attn/lines_permuted.h"
#endif
