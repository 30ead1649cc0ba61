// Rows, slots and their places in the cache.
#pragma once
#include "kg/kv/kv_num.h"

namespace kg {

typedef const KG_CONSTANT kg_kv_write_args &args_t;
typedef const KG_CONSTANT kg_kv_side &side_t;

template <int I64> KG_DEV i64 load_index(const void *base, i64 i) {
    if constexpr (I64 != 0)
        return load((const i64 *)base + i);
    else
        return load((const i32 *)base + i);
}

// The slot of a row, -1 where it is skipped. Slots are below 2^31 (checked at
// launch), so 32 bits hold them.
KG_DEV i32 slot_of(args_t a, int row) {
    i64 n = load_index<SLOTS_I64>(a.slots, row);
    if constexpr (REMAP != 0) {
        if (n < 0 || n >= a.remap_size) return -1;
        n = load_index < REMAP == REMAP_I64 > (a.remap, n);
    }
    return n < a.first_slot || n >= a.slot_end ? -1 : (i32)n;
}

struct place_t {
    u32 page, slot;
};

KG_DEV place_t place_of(args_t a, i32 slot) {
    if constexpr (PAGE == 1)
        return place_t{(u32)slot, 0};
    else if constexpr (PAGE != PAGE_X16)
        return place_t{(u32)slot / PAGE, (u32)slot % PAGE};
    u32 page = divide((u32)slot, a.by_page);
    return place_t{page, (u32)slot - page * (u32)a.page};
}

KG_DEV float *scale_at(side_t side, place_t at, int head) {
    return side.scale +
           (at.page * side.scale_page + at.slot * side.scale_slot + head * side.scale_head);
}

KG_DEV void write_scale(side_t side, place_t at, int head, float scale) {
    store(scale_at(side, at, head), scale);
}

KG_DEV float given_scale(side_t side, int head) {
    return load(side.scale + head * side.scale_head);
}

} // namespace kg
