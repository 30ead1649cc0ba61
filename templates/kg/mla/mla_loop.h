// Stands for the file of the isa, like kg/core/machine.h: how a workgroup goes through
// the keys of a segment.
#pragma once
#if defined(KG_ISA_SM90)
#include "kg/mla/mla_groups_nvidia.h"
#elif defined(KG_ISA_CDNA4)
#include "kg/mla/mla_direct.h"
#else
#include "kg/mla/mla_staged.h"
#endif
