// Stands for the file of the isa, like kg/core/machine.h: how a workgroup goes through
// the keys of a segment.
#pragma once
#if defined(KG_ISA_SM90)
#include "kg/attn/key_loop_nvidia.h"
#elif defined(KG_ISA_RDNA2)
#include "kg/attn/key_loop_direct.h"
#else
#include "kg/attn/key_loop_lines.h"
#endif
