// Values that lie in LDS are turned there.
#pragma once
#include "kg/attn/lines_turned.h"
#include "kg/attn/walk_cdna.h"
