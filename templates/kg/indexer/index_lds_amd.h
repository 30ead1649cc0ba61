// Counters in LDS. What they were comes back, though nobody wants it: emulated devices write
// it in any case, to a register that the instruction without a result does not name.
#pragma once
#include "kg/core/machine.h"

namespace kg {

KG_DEV u32 count_one(u32 *p) {
    return __hip_atomic_fetch_add((__attribute__((address_space(3))) u32 *)p, 1u, __ATOMIC_RELAXED,
                                  __HIP_MEMORY_SCOPE_WORKGROUP);
}

} // namespace kg
