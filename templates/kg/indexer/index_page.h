// Where a cached key lies.
#pragma once
#include "kg/indexer/index_types.h"

namespace kg {

struct place_t {
    i32 page; // -1: nowhere
    int slot;
};

KG_DEV place_t page_and_slot(args_t a, u32 token) {
    if constexpr (PAGE != PAGE_X16) return place_t{(i32)(token / PAGE), (int)(token % PAGE)};
    u32 page = quotient_of(token, a.by_page);
    return place_t{(i32)page, (int)(token - page * (u32)a.page)};
}

// The entry of a table for a token that is not below 0; below 0: it has none.
KG_DEV i64 entry_of(args_t a, i64 row, int column) {
    if (column >= a.columns) return -1;
    return load_int<TABLE_I64>(a.table, row * a.table_row + column);
}

KG_DEV place_t place_of(args_t a, i64 row, int token) {
    place_t p = page_and_slot(a, (u32)token);
    i64 page = entry_of(a, row, p.page);
    p.page = page < 0 || page >= a.pages ? -1 : (i32)page;
    return p;
}

KG_DEV u8 *key_at(args_t a, place_t p) {
    return (u8 *)a.cache + (p.page * a.cache_page + p.slot * a.cache_token);
}
KG_DEV float *scale_at(args_t a, place_t p) { return a.scales + (p.page * a.scales_page + p.slot); }

// 16 codes; where pages are of 1 or 2 keys, these begin at multiples of 4 bytes.
KG_DEV void load_codes(u32 (&out)[4], const u8 *p) {
    if constexpr (PAGE == PAGE_X16 || PAGE > 2)
        load_words(out, p);
    else
        KG_UNROLL for (int i = 0; i < 4; i++) out[i] = load((const u32 *)p + i);
}

} // namespace kg
