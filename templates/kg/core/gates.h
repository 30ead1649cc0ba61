// Stands for the file of the vendor, like kg/core/machine.h: barriers of some of a workgroup's
// waves, and what such waves tell each other.
#pragma once
#if defined(KG_ISA_SM90)
#include "kg/core/gates_nvidia.h"
#else
#include "kg/core/gates_amd.h"
#endif
