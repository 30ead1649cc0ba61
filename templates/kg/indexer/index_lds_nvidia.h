// Counters in LDS, and copies into it past the registers.
#pragma once
#include "kg/core/machine.h"

namespace kg {

KG_DEV u32 count_one(u32 *p) {
    atomicAdd(p, 1u);
    return 0;
}

// Like copy_16 of kg/attn/lds_nvidia.h.
KG_DEV void copy_4(u8 *lds, const void *p) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :
                 : "r"((u32)__cvta_generic_to_shared(lds)), "l"(p)
                 : "memory");
}

} // namespace kg
