// For an editor and a compiler that read attn.hip by itself. In generated text
// this name stands for the file of the target (gen/source.c).
#pragma once
#if KG_SM90
#include "kg/core/machine_nvidia.h"
#else
#include "kg/core/machine_amd.h"
#endif
