// Values that lie in LDS are turned by byte permutes.
#pragma once
#include "kg/attn/lines_permuted.h"
#include "kg/attn/walk_cdna.h"
