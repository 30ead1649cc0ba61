// Counters in LDS.
#pragma once
#include "kg/core/machine.h"

namespace kg {

KG_DEV u32 count_one(u32 *p) {
    atomicAdd(p, 1u);
    return 0;
}

} // namespace kg
