// A pool of pages as boxes are brought out of it (kg/attn/boxes_nvidia.h), how large they are, and
// of which blocks.
#pragma once
#include "kg/attn/page.h"
#include "kg/attn/seqs.h"

namespace kg {

constexpr int BOX_ROWS = 16, BOX_BYTES = BOX_ROWS * 128;

struct pool_t {
    const u8 *rows;
    i64 page_bytes, head_bytes, row_bytes; // from one to the next
    int columns;                           // bytes of a row
    int page, heads, pages;                // rows of a page, 16 or a multiple; how many there are
    int box_rows = BOX_ROWS, box_heads = 1;
};
constexpr int MAP_BYTES = KG_ATTN_MAP_BYTES; // of what says so to a box
static_assert(sizeof(pool_t) <= MAP_BYTES, "room for it on the cpu device");

// Maps lie before the partial sums. One that all write is waited for where each segment reads it
// again, so of latent rows each workgroup has one.
KG_DEV u8 *map_of(args_t a, u32 number) {
    u32 behind = STAGED ? opaque(group_id()) + 1 : KG_ATTN_MAPS - number; // no place is kept
    return (u8 *)a.partial_ml - behind * MAP_BYTES;
}

// What rows see of the block at `start`.
enum rows_seen_t { SEEN_NONE = 0, SEEN_PART = 1, SEEN_ALL = 2 };
KG_DEV rows_seen_t seen_of(const keys_t &keys, int start) {
    int last = start + TOK - 1;
    bool kept = KEEP != 0 && start < keys.keep;
    if (start > keys.last || (last < keys.first && !kept)) return SEEN_NONE;
    bool behind = start >= keys.first || (kept && start + TOK <= keys.keep);
    return behind && last <= keys.last ? SEEN_ALL : SEEN_PART;
}
// The page that a block's box comes from: zeros, from behind the pool, where no row sees it.
KG_DEV i32 page_of_box(const keys_t &keys, i32 page, rows_seen_t seen) {
    if (seen == SEEN_NONE) return keys.last_page + 1;
    return DENSE ? 0 : (i32)inside_pool(keys, page);
}

} // namespace kg
