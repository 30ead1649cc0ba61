// Stands for the file of the target, like kg/core/target.h.
#if KG_SM90
#include "kg/core/mma_nvidia.h"
#else
#include "kg/core/mma_amd.h"
#endif
