// Stands for the file of the isa, like kg/core/machine.h: how a workgroup goes through
// the keys of a segment.
#pragma once
#if defined(KG_ISA_SM90)
#include "kg/attn/key_loop_nvidia.h"
#elif defined(KG_ISA_CDNA1) || defined(KG_ISA_CDNA2) || defined(KG_ISA_CDNA3) || \
    defined(KG_ISA_CDNA4)
#include "kg/attn/key_loop_cdna.h"
#else
#include "kg/attn/key_loop_direct.h"
#endif
