// Counters in LDS, and copies; see index_lds_nvidia.h.
#pragma once
#include "kg/core/machine.h"

namespace kg {

KG_DEV u32 count_one(u32 *p) { return __atomic_fetch_add(p, 1u, __ATOMIC_RELAXED); }
KG_DEV void copy_4(u8 *lds, const void *p) { __builtin_memcpy(lds, p, 4); }

} // namespace kg
