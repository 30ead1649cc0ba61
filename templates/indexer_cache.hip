#include "kg/prelude/prelude_indexer.h"
// The indexer's keys into a paged cache, as codes with a scale each, and out of it as they
// are. Formula and arguments: <kgen/indexer_args.h>.
//
// Neighbouring lanes share a key, 16 codes each.
#include "kg/indexer/index_page.h"
#include "kg/indexer/index_scale.h"

namespace kg {

constexpr int LANES = HEAD_DIM / KG_INDEX_PIECE; // of a key

// --- in ------------------------------------------------------------------------

KG_DEV i64 slot_of(args_t a, int row) {
    i64 slot = row < a.tokens ? load_int<SLOTS_I64>(a.slots, row) : -1;
    return slot < (i64)a.pages * a.page ? slot : -1;
}

KG_DEV void load_piece(float (&x)[X], const u8 *p) {
    u32 words[OUT_WORDS];
    KG_UNROLL for (int n = 0; n < OUT_WORDS; n += 4) {
        u32 quad[4];
        load_plain(quad, p + n * 4);
        KG_UNROLL for (int i = 0; i < 4; i++) words[n + i] = quad[i];
    }
    unpack_words(x, words);
}

// Over the lanes of a key.
KG_DEV u32 largest(u32 top) {
    KG_UNROLL for (u32 mask = 1; mask < (u32)LANES; mask *= 2) {
        u32 other = shuffle(top, lane_id() ^ mask);
        top = other > top ? other : top;
    }
    return top;
}

KG_DEV void write_key(args_t a, int row, int piece) {
    i64 slot = slot_of(a, row);
    float x[X] = {};
    u32 top = 0;
    if (slot >= 0) load_piece(x, (const u8 *)a.k + (row * a.k_row + piece * (X * X_BYTES)));
    KG_UNROLL for (int i = 0; i < X; i++) {
        u32 size = counted_magnitude(x[i]);
        top = size > top ? size : top;
    }
    float scale = index_scale(largest(top)), inverse = reciprocal(scale);
    if (slot < 0) return;
    place_t at = page_and_slot(a, (u32)slot);
    u32 out[4];
    KG_UNROLL for (int i = 0; i < 4; i++) {
        float q[4];
        KG_UNROLL for (int n = 0; n < 4; n++) q[n] = quotient<false>(x[4 * i + n], scale, inverse);
        out[i] = word_of<false>(q);
    }
    store_line(key_at(a, at) + piece * KG_INDEX_PIECE, out);
    if (piece == 0) store(scale_at(a, at), scale);
}

// --- out -----------------------------------------------------------------------

// The last sequence that begins at or before `row`; -1: none.
KG_DEV int sequence_of(args_t a, int row) {
    int low = 0, high = a.seqs + 1; // low - 1 begins there, high does not
    KG_LOOP while (low < high) {
        int middle = (low + high) / 2;
        if (load_int<CU_I64>(a.cu_seqlens, middle) <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

KG_DEV void gather_key(args_t a, int row, int piece) {
    if (row >= a.rows) return;
    int seq = sequence_of(a, row);
    place_t at = {-1, 0};
    if (seq >= 0 && seq < a.seqs)
        at = place_of(a, seq, row - (int)load_int<CU_I64>(a.cu_seqlens, seq));
    u32 codes[4] = {0, 0, 0, 0};
    float scale = 0;
    if (at.page >= 0) {
        load_codes(codes, key_at(a, at) + piece * KG_INDEX_PIECE);
        scale = load(scale_at(a, at));
    }
    store_words((u8 *)a.keys + (row * a.keys_row + piece * KG_INDEX_PIECE), codes);
    if (piece == 0) store(a.key_scales + row, scale);
}

KG_DEV void run(args_t a) {
    u32 place = group_id() * (u32)KG_WORKGROUP + thread_id();
    if constexpr (OP == OP_WRITE)
        write_key(a, (int)(place / LANES), (int)(place % LANES));
    else
        gather_key(a, (int)(place / LANES), (int)(place % LANES));
}

} // namespace kg

KG_ENTRY(kg_indexer_args, args, kg::OCCUPANCY) { kg::run(KG_ARGS(kg_indexer_args, args)); }
