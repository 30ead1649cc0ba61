// Stands for the file of the isa, like kg/core/machine.h: how a workgroup goes through
// the keys of a segment.
#pragma once
#if defined(KG_ISA_SM90)
#include "kg/mla/mla_pairs_nvidia.h"
#else
#include "kg/mla/mla_staged.h"
#endif
