// Stands for the file of the isa, like kg/core/machine.h: how a workgroup goes through the keys
// of an item.
#pragma once
#if defined(KG_ISA_SM90)
#include "kg/indexer/index_groups_nvidia.h"
#else
#include "kg/indexer/index_waves.h"
#endif
