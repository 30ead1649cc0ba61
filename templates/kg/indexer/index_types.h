// What follows from the indexer's constants.
#pragma once
#include "kg/core/machine.h"
#include "kg/indexer/indexer_packed.h"
#include "kg/indexer/indexer_shape.h"

namespace kg {

typedef const KG_CONSTANT kg_indexer_args &args_t;

template <int WIDE> KG_DEV i64 load_int(const void *p, i64 i) {
    if constexpr (WIDE != 0)
        return load((const i64 *)p + i);
    else
        return load((const i32 *)p + i);
}

// Numbers that the device holds may be anything.
KG_DEV int within(i64 x, int low, int high) { return x < low ? low : x > high ? high : (int)x; }

KG_DEV u32 quotient_of(u32 n, const KG_CONSTANT kg_divisor &by) {
    return (u32)((u64)n * by.magic >> by.shift);
}

} // namespace kg
