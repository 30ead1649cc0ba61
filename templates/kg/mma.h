// Stands for the file of the target, like kg/target.h.
#if KG_SM90
#include "kg/mma_nvidia.h"
#else
#include "kg/mma_amd.h"
#endif
