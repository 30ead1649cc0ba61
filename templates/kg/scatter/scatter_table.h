// Columns of page tables: CELLS neighbours a lane, whose loads are all in flight
// at once and which leave as 16-byte stores where rows are aligned.
#pragma once
#include "kg/scatter/scatter_num.h"

namespace kg {

constexpr int CELLS = KG_SCATTER_CELLS;
constexpr int TILE = THREADS * CELLS; // columns of a workgroup

struct blocks_t {
    source_t source;
    i64 tokens, offset;      // the first token lies `offset` into its page
    i64 blocks;              // that have tokens
    void *table, *swa_table; // this row
    i64 fill;
};

// Table cells first .. first + CELLS - 1 of those in from .. end - 1.
template <int WIDE>
KG_DEV void store_cells(void *row, i64 first, i64 from, i64 end, const i64 (&x)[CELLS]) {
    u8 *p = (u8 *)row + first * (WIDE ? 8 : 4);
    if (first >= from && first + CELLS <= end && (u64)p % 16 == 0) {
        if constexpr (WIDE) {
            KG_UNROLL for (int i = 0; i < CELLS; i += 2) {
                u32 quad[4] = {(u32)x[i], (u32)((u64)x[i] >> 32), (u32)x[i + 1],
                               (u32)((u64)x[i + 1] >> 32)};
                store_words(p + 8 * i, quad);
            }
        } else {
            u32 quad[4] = {(u32)x[0], (u32)x[1], (u32)x[2], (u32)x[3]};
            store_words(p, quad);
        }
        return;
    }
    KG_UNROLL for (int i = 0; i < CELLS; i++) if (first + i >= from && first + i < end)
        store_int<WIDE>(row, first + i, x[i]);
}

// The token whose slot names block j.
KG_DEV i64 named_by(const blocks_t &b, i64 j) {
    if (PICK_FIRST) return most(j * PAGE - b.offset, 0);
    return least((j + 1) * PAGE - b.offset, b.tokens) - 1;
}

// Page 1: neighbours in the table are neighbours in the row of slots.
KG_DEV bool load_neighbours(i64 (&slot)[CELLS], const blocks_t &b, i64 j) {
    if (PAGE != 1 || SLOT_I64 || j + CELLS > b.tokens) return false;
    i64 first = entry_of(b.source, j), last = entry_of(b.source, j + CELLS - 1);
    const u8 *p = (const u8 *)b.source.slots + first * 4;
    if (last - first != CELLS - 1 || first < 0 || last >= b.source.limit || (u64)p % 16)
        return false;
    u32 quad[4];
    load_words(quad, p);
    KG_UNROLL for (int i = 0; i < CELLS; i++) slot[i] = (i32)quad[i];
    return true;
}

// The slots that name those of the blocks j .. j + CELLS - 1 that are in from ..
// end - 1.
KG_DEV void load_slots(i64 (&slot)[CELLS], args_t a, const blocks_t &b, i64 j, i64 from, i64 end) {
    if (load_neighbours(slot, b, j)) return;
    KG_UNROLL for (int i = 0; i < CELLS; i++) {
        bool named = j + i >= from && j + i < end && j + i < b.blocks;
        slot[i] = named ? slot_at<SLOT_I64>(a, b.source, named_by(b, j + i)) : -1;
    }
}

KG_DEV void name_pages(i64 (&out)[CELLS], const blocks_t &b, const i64 (&slot)[CELLS], i64 j) {
    KG_UNROLL for (int i = 0; i < CELLS; i++) out[i] = j + i >= b.blocks ? b.fill
                                                       : slot[i] < 0     ? -1
                                                                         : page_of(slot[i]);
}

// Columns j .. j + CELLS - 1 of both tables, of those in from .. end - 1.
KG_DEV void write_cells(args_t a, const blocks_t &b, i64 j, i64 from, i64 end) {
    i64 slot[CELLS], page[CELLS];
    if (j >= end) return;
    load_slots(slot, a, b, j, from, end);
    name_pages(page, b, slot, j);
    store_cells<TABLE_I64>(b.table, j, from, least(end, a.width), page);
    if constexpr (SWA) {
        i64 swa_end = least(end, a.swa_width);
        KG_UNROLL for (int i = 0; i < CELLS; i++) {
            bool named = j + i >= from && j + i < swa_end && j + i < b.blocks;
            slot[i] = named ? mapped(a, slot[i]) : -1;
        }
        name_pages(page, b, slot, j);
        store_cells<TABLE_I64>(b.swa_table, j, from, swa_end, page);
    }
}

KG_DEV i64 widest(args_t a) { return SWA ? most(a.width, a.swa_width) : a.width; }
KG_DEV i64 tail_value(args_t a) { return TAIL == TAIL_VALUE ? a.fill : 0; }

// Last column that is written, plus one: with tail=keep the last block.
KG_DEV i64 row_end(args_t a, const blocks_t &b) {
    return TAIL == TAIL_KEEP ? least(b.blocks, widest(a)) : widest(a);
}

KG_DEV void *row_of(void *table, i64 row) { return (void *)element<TABLE_I64>(table, row); }

// Row n of the tables, with nothing in it.
KG_DEV blocks_t empty_row(args_t a, i64 n) {
    blocks_t b = {{nullptr, 0, NEVER, 0}, 0, 0, 0, row_of(a.table, n * a.table_row), nullptr,
                  tail_value(a)};
    if constexpr (SWA) b.swa_table = row_of(a.swa_table, n * a.swa_table_row);
    return b;
}

KG_DEV void set_tokens(args_t a, blocks_t &b, const source_t &source, i64 tokens) {
    b.source = source;
    b.tokens = tokens;
    if constexpr (UNALIGNED)
        b.offset = tokens > 0 ? most(slot_at<SLOT_I64>(a, source, 0), 0) % PAGE : 0;
    b.blocks = tokens > 0 ? divide_up(b.offset + tokens, PAGE) : 0;
}

// Once a row: does it fit?
KG_DEV void check_width(args_t a, const blocks_t &b) {
    if (b.blocks > a.width || (SWA && b.blocks > a.swa_width)) flag(a, BAD_WIDTH);
}

} // namespace kg
