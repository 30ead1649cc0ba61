// Token -> address. Tokens outside the visible keys are never touched: their
// rows are clamped to the nearest visible one and masked in the scores, so
// stale pages, freed pages and table entries past the end do not matter.
#pragma once
#include "kg/attn/attn_types.h"
#include "kg/core/frag.h"
#include "kg/core/machine.h"

namespace kg {

// Pages smaller than a group of tokens: a lane looks up each token's page.
constexpr bool SMALL_PAGE = PAGE > 0 && PAGE < 16;
// A row of key tiles, and what a lane weighs of as many tokens, lies in one page: pages are
// scalars, and so is where a row of tokens begins. Not where scalars are short.
constexpr bool BY_PAGE = !IS_SM90 && !PACKED && !BUFFERED && !STAGED && !SMALL_PAGE && KEEP == 0 &&
                         !CASCADE && TREE == 0;
constexpr int K_IDS = SMALL_PAGE ? KROWS : BY_PAGE ? TOK / 16 : 1; // page numbers a lane needs
constexpr int V_IDS = SMALL_PAGE ? TPL : 1;
constexpr bool SHARED_ID = !SMALL_PAGE && TOK == 16; // a block lies in one page

// BY_PAGE, of such a row: what lane i has of the keys, and how many a lane weighs.
KG_DEV int row_token(int i) { return TOK == 16 ? k_token(i, 0) : i; }
constexpr int ROW_TPL = TPL * 16 / TOK;

// What stands at a place of a block's operands.
KG_DEV int token_at(int place) {
    return BY_PAGE ? 16 * (place / ROW_TPL % (TOK / 16)) + ROW_TPL * (place / TPL) + place % ROW_TPL
                   : place;
}

struct keys_t {
    int first, last; // visible to some row: [first, last]
    const u8 *table; // the sequence's row
    int page, last_page;
    u64 magic;
    int dense; // where keys without pages begin
    int keep;  // keys before `first` that all rows see
};

struct ids_t {
    i32 k[K_IDS], v[V_IDS]; // a pool has fewer than 2^31 pages (checked at launch)
};

KG_DEV int clamp_token(const keys_t &keys, int token) {
    int below = token < keys.last ? token : keys.last;
    // Kept keys, and what shares 16 tokens and so a page with them but not with `first`:
    // a group of packed values that has `first` must be the group itself.
    if (KEEP != 0 && SMALL_PAGE) return below < keys.keep ? below : larger(below, keys.first);
    bool apart = below / 16 < keys.first / 16;
    if (KEEP != 0 && below < ceil_div(keys.keep, 16) * 16 && (below < keys.keep || apart))
        return smaller(below, keys.keep - 1);
    return !SEES_START && below < keys.first ? keys.first : below;
}

KG_DEV int page_index(const keys_t &keys, int token) {
    if constexpr (PAGE == PAGE_X16)
        return (int)((u64)(token >> 4) * keys.magic >> 36);
    else
        return (int)((u32)token / (u32)(PAGE < 1 ? 1 : PAGE));
}

KG_DEV i32 page_number(const keys_t &keys, int token) {
    int index = page_index(keys, clamp_token(keys, token));
    if constexpr (DENSE)
        return keys.dense + index;
    else if constexpr (TABLE_I64)
        return (i32)load((const i64 *)keys.table + index);
    else
        return load((const i32 *)keys.table + index);
}

// A page of the pool, whatever the table says. Where it is used, not where it is
// loaded: nobody waits for a number before its time.
KG_DEV i64 inside_pool(const keys_t &keys, i32 id) {
    return (u32)id < (u32)keys.last_page ? id : keys.last_page;
}

// The page numbers this lane needs for the block at `start`.
KG_DEV void load_ids(ids_t &ids, const keys_t &keys, int start) {
    int i = lane_i((int)lane_id()), grp = lane_grp((int)lane_id());
    if constexpr (BY_PAGE) {
        KG_UNROLL for (int n = 0; n < K_IDS; n++) ids.k[n] = page_number(keys, start + 16 * n);
        return;
    }
    KG_UNROLL for (int n = 0; n < K_IDS; n++) ids.k[n] =
        page_number(keys, start + (SHARED_ID ? 0 : k_token(i, n)));
    KG_UNROLL for (int n = 0; n < V_IDS; n++) ids.v[n] =
        SHARED_ID ? ids.k[0] : page_number(keys, start + TPL * grp + n);
}

// First token of the page that holds `anchor`, clamped to visible tokens.
KG_DEV int page_start(const keys_t &keys, int anchor) {
    int page = PAGE == PAGE_X16 ? keys.page : PAGE;
    return page_index(keys, clamp_token(keys, anchor)) * page;
}
// Slot of `token` in that page, clamped like it.
KG_DEV int slot_of(const keys_t &keys, int token, int anchor) {
    if constexpr (SMALL_PAGE) return clamp_token(keys, token) % (SMALL_PAGE ? PAGE : 1);
    return clamp_token(keys, token) - page_start(keys, anchor);
}

// BY_PAGE: the sixteen tokens at `start`, or the nearest of which some are visible. What is not
// is clamped to these.
struct page_rows_t {
    const u8 *from;
    u32 least, most; // bytes to the first and the last that is visible
};
KG_DEV page_rows_t page_rows(const keys_t &keys, i32 id, const u8 *from, i64 page_bytes,
                             int token_bytes, int start) {
    int first = smaller(start, keys.last / 16 * 16), page = PAGE == PAGE_X16 ? keys.page : PAGE;
    if constexpr (!SEES_START) first = larger(first, keys.first / 16 * 16);
    u32 at = (u32)(first - page_index(keys, first) * page) * (u32)token_bytes;
    u32 least = SEES_START ? 0 : (u32)(larger(keys.first - first, 0) * token_bytes);
    u32 most = (u32)(smaller(keys.last - first, 15) * token_bytes);
    from += (i64)((u64)(u32)id * (u64)page_bytes); // a number has no sign
    return page_rows_t{from + (PAGE == 16 ? 0 : at), least, most};
}
// Row `row` of them, and `of_lane` bytes in it.
KG_DEV const u8 *row_in_page(const page_rows_t &rows, int row, int token_bytes, u32 of_lane) {
    u32 at = (u32)(row * token_bytes) + of_lane, least = rows.least + of_lane;
    u32 most = rows.most + of_lane;
    if constexpr (!SEES_START) at = at > least ? at : least;
    return rows.from + (at < most ? at : most);
}

// BY_PAGE: the numbers as scalars, when they are there.
KG_DEV void settle_ids(ids_t &ids, const keys_t &keys) {
    if constexpr (BY_PAGE)
        KG_UNROLL for (int n = 0; n < K_IDS; n++) ids.k[n] =
            (i32)inside_pool(keys, uniform(ids.k[n]));
}

// First token of the block numbered `block`; `start` is that of the one `steps` before.
KG_DEV int block_start(const keys_t &keys, int block) {
    if constexpr (KEEP == 0) return block * TOK;
    int seen = uniform(keys.first) / TOK, kept = uniform(ceil_div(keys.keep, TOK));
    return (block < seen ? block - larger(seen - kept, 0) : block) * TOK;
}
KG_DEV int block_after(const keys_t &keys, int block, int start, int steps) {
    if constexpr (KEEP == 0) return start + steps * TOK;
    return block_start(keys, block + steps);
}

} // namespace kg
