// Stands for the file of the isa, like kg/core/machine.h: how the last to arrive merges
// the parts of an item.
#pragma once
#if defined(KG_ISA_SM90)
#include "kg/attn/parts_nvidia.h"
#else
#include "kg/attn/parts_uniform.h"
#endif
