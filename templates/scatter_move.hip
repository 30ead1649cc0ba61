#include "kg/prelude/prelude_scatter.h"
// Bytes go elsewhere: cached keys and values to other slots, in all layers at
// once (kv_compact), rows by an index, pages from cache to cache. Rules and
// arguments: <kgen/scatter_args.h>.
//
// In kv_compact a lane has the same UNIT bytes of every move of a request, in
// their order, so that no one else writes what it has yet to read.
#include "kg/scatter/scatter_num.h"

namespace kg {

// Moves whose bytes are in flight together.
constexpr int AHEAD = 4;

struct unit_t {
    u32 word[4]; // of which UNIT bytes
};

KG_DEV void load_unit(unit_t &x, const u8 *p) {
    if constexpr (UNIT == 16)
        load_plain(x.word, p);
    else if constexpr (UNIT >= 4)
        KG_UNROLL for (int i = 0; i < UNIT / 4; i++) x.word[i] = load((const u32 *)p + i);
    else if constexpr (UNIT == 2)
        x.word[0] = load((const u16 *)p);
    else
        x.word[0] = load(p);
}

KG_DEV void store_unit(u8 *p, const unit_t &x) {
    if constexpr (UNIT == 16)
        store_words(p, x.word);
    else if constexpr (UNIT >= 4)
        KG_UNROLL for (int i = 0; i < UNIT / 4; i++) store((u32 *)p + i, x.word[i]);
    else if constexpr (UNIT == 2)
        store((u16 *)p, (u16)x.word[0]);
    else
        store(p, (u8)x.word[0]);
}

KG_DEV u8 *place_of(args_t a, u8 *pool, i64 slot) {
    i64 inside = in_page(slot);
    u8 *page = pool + page_of(slot) * a.page_bytes;
    if constexpr (PACK == 1)
        return page + inside * a.token_bytes;
    else
        return page + inside / PACK * a.group_bytes + inside % PACK * a.token_bytes;
}

// Slot of a move, or -1.
KG_DEV i64 checked(args_t a, const void *slots, i64 at) {
    i64 slot = load_int<LOC_I64>(slots, at);
    if (slot < a.slot_count) return slot;
    flag(a, BAD_COLUMN);
    return -1;
}

// Moves i .. i + AHEAD - 1 of row n. What the first of them write, the last do
// not read: of a row a target is no later source.
KG_DEV void move_some(args_t a, u8 *pool, int n, int i) {
    unit_t x[AHEAD];
    i64 to[AHEAD];
    KG_UNROLL for (int k = 0; k < AHEAD; k++) {
        to[k] = -1;
        if (i + k >= a.move_width) continue;
        i64 from = checked(a, a.sources, n * a.sources_row + i + k);
        i64 target = checked(a, a.targets, n * a.targets_row + i + k);
        if (from < 0 || target < 0 || from == target) continue;
        load_unit(x[k], place_of(a, pool, from));
        to[k] = target;
    }
    KG_UNROLL for (int k = 0; k < AHEAD; k++) if (to[k] >= 0)
        store_unit(place_of(a, pool, to[k]), x[k]);
}

KG_DEV void run_compact(args_t a) {
    i64 group = group_id(), tile = group % a.tiles, row = group / a.tiles;
    int n = (int)(row / a.pool_count), pool = (int)(row % a.pool_count);
    i64 unit = tile * THREADS + thread_id(), each = a.piece_bytes / UNIT, piece = unit / each;
    if (n >= live_rows(a) || piece >= a.pieces) return;
    i64 begin = load(a.pools + pool);
    // A kernel for UNIT bytes reads no other addresses.
    if (begin % UNIT || (a.pool && (begin < 0 || begin > a.pool_room))) {
        flag(a, BAD_CAPACITY);
        return;
    }
    u8 *base = (u8 *)((u64)a.pool + (u64)begin) + piece * a.piece_stride + unit % each * UNIT;
    for (int i = 0; i < a.move_width; i += AHEAD) move_some(a, base, n, i);
}

// --- rows and pages ------------------------------------------------------------

// Row `from` of what is read goes to row `to`; -1: there is none.
struct copy_t {
    i64 from, to;
};

KG_DEV copy_t copy_of(args_t a, i64 n) {
    if constexpr (OP == OP_COPY_PAGES) {
        i64 at = n * a.pairs_row;
        return copy_t{load_int<LOC_I64>(a.pairs, at), load_int<LOC_I64>(a.pairs, at + 1)};
    }
    return copy_t{load_int<LOC_I64>(a.row_index, n), n};
}

KG_DEV void run_rows(args_t a) {
    i64 group = group_id(), n = group / a.tiles;
    i64 at = (group % a.tiles * THREADS + thread_id()) * UNIT;
    copy_t c = {-1, n};
    unit_t x = {};
    if (n < live_rows(a))
        c = copy_of(a, n);
    else if (OP == OP_COPY_PAGES)
        return;
    bool reads = c.from >= 0 && c.from < a.rows_in_count;
    bool writes = c.to >= 0 && c.to < a.rows_out_count;
    if (at == 0 && ((!reads && c.from != -1) || (!writes && c.to != -1))) flag(a, BAD_COLUMN);
    if (at >= a.row_bytes || !writes || (OP == OP_COPY_PAGES && !reads)) return;
    if (reads) load_unit(x, a.rows_in + c.from * a.rows_in_row + at);
    store_unit(a.rows_out + c.to * a.rows_out_row + at, x);
}

KG_DEV void run(args_t a) {
    if constexpr (OP == OP_KV_COMPACT)
        run_compact(a);
    else
        run_rows(a);
}

} // namespace kg

KG_ENTRY(kg_scatter_args, args, kg::OCCUPANCY) { kg::run(KG_ARGS(kg_scatter_args, args)); }
