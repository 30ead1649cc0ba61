// Stands for the file of the target, like kg/core/machine.h.
#pragma once
#if KG_SM90
#include "kg/core/macros_nvidia.h"
#else
#include "kg/core/macros_amd.h"
#endif
