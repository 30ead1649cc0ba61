// Stands for the file of the isa, like kg/core/machine.h: how values are read that lie in LDS as
// lines.
#pragma once
#if defined(KG_ISA_CDNA4)
#include "kg/attn/lines_turned.h"
#else
#include "kg/attn/lines_permuted.h"
#endif
