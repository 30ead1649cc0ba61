// Stands for the file of the target, like kg/core/machine.h.
#pragma once
#if KG_SM90
#include "kg/core/frag_sm90.h"
#elif KG_RDNA3 || KG_RDNA4
#include "kg/core/frag_rdna.h"
#else
#include "kg/core/frag_cdna.h"
#endif
