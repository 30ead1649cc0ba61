// Stands for the file of the target, like kg/target.h.
#if KG_SM90
#include "kg/frag_sm90.h"
#elif KG_RDNA3 || KG_RDNA4
#include "kg/frag_rdna.h"
#else
#include "kg/frag_cdna.h"
#endif
