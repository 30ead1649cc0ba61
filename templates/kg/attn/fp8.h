// Stands for the file of the target, like kg/core/machine.h.
#pragma once
#if KG_SM90
#include "kg/attn/fp8_nvidia.h"
#else
#include "kg/attn/fp8_amd.h"
#endif
