// Stands for the file of the target, like kg/core/machine.h.
#pragma once
#if KG_SM90
#include "kg/attn/mma_nvidia.h"
#else
#include "kg/attn/mma_amd.h"
#endif
