// Counters in LDS.
#pragma once
#include "kg/core/machine.h"

namespace kg {

KG_DEV u32 count_one(u32 *p) { return __atomic_fetch_add(p, 1u, __ATOMIC_RELAXED); }

} // namespace kg
