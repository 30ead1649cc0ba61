#include "kg/prelude/prelude_scatter.h"
// Page tables from ragged slots, from rows of req_to_token, and for every step
// and branch of a draft. Rules and arguments: <kgen/scatter_args.h>.
//
// A workgroup has TILE columns of one row, and finds out by itself how long the
// row is: the grid depends on the table's shape alone.
#include "kg/scatter/scatter_table.h"

namespace kg {

KG_DEV void find_ragged(args_t a, blocks_t &b, int n) {
    i64 start = load_int<LEN_I64>(a.indptr, n), end = load_int<LEN_I64>(a.indptr, n + 1);
    source_t s = {a.slots, 0, NEVER, 0};
    if (start >= 0 && start <= a.flat) {
        s.slots = element<SLOT_I64>(a.slots, start);
        s.limit = a.flat - start;
    }
    set_tokens(a, b, s, n < live_rows(a) ? most(difference(end, start), 0) : 0);
}

// A request that there is not has no tokens; request_row says so.
KG_DEV i64 row_length(args_t a, int n) {
    if constexpr (!BY_REQUEST) return load_int<LEN_I64>(a.lens, n);
    i64 r = load_int<REQ_I64>(a.requests, n);
    return r < 0 || r >= a.request_rows ? -(i64)a.tokens : load_int<LEN_I64>(a.lens, r);
}

KG_DEV void find_request(args_t a, blocks_t &b, int n) {
    i64 start = 0, count = most(sum_of(row_length(a, n), a.tokens), 0);
    bool live = n < live_rows(a);
    if constexpr (STARTS) start = length_of(a.starts, n);
    set_tokens(a, b, request_row(a, n, start, live), live ? count : 0);
}

// Step i = step + 1: the prefix, then i drafts of branch k.
KG_DEV void find_draft(args_t a, blocks_t &b, int n, int k, int step) {
    i64 length = length_of(a.lens, n);
    bool live = n < live_rows(a);
    source_t s = request_row(a, n, 0, live);
    s.prefix = length;
    s.jump = draft_jump(a, length, k);
    set_tokens(a, b, s, live ? length + step + 1 : 0);
}

KG_DEV void run(args_t a) {
    int group = (int)group_id(), tile = group % a.tiles, row = group / a.tiles;
    constexpr bool DRAFT = OP == OP_DRAFT_PAGE_TABLE;
    int each = DRAFT ? a.rows * a.topk : a.rows, step = DRAFT ? row / each : 0;
    int z = DRAFT ? row % each : row, n = DRAFT ? z / a.topk : row;
    i64 first = (i64)tile * TILE + (i64)thread_id() * CELLS;
    blocks_t b = empty_row(a, z);
    if constexpr (DRAFT) b.table = row_of(b.table, step * a.table_step);
    if constexpr (OP == OP_PAGE_TABLE_RAGGED) find_ragged(a, b, n);
    if constexpr (OP == OP_PAGE_TABLE_REQUESTS) find_request(a, b, n);
    if constexpr (DRAFT) find_draft(a, b, n, z % a.topk, step);
    if (tile == 0 && thread_id() == 0) {
        check_width(a, b);
        if constexpr (UNALIGNED) store(a.row_offsets + n, (i32)b.offset);
    }
    write_cells(a, b, first, 0, row_end(a, b));
}

} // namespace kg

KG_ENTRY(kg_scatter_args, args, kg::OCCUPANCY) { kg::run(KG_ARGS(kg_scatter_args, args)); }
