// Blocks of keys and values wait in LDS as they come, each wave's own, so that waves need not meet.
// What is ahead of the block that is multiplied takes no registers then, and is on its way before
// queries are there.
#pragma once
#include "kg/attn/buffer_nvidia.h"
#include "kg/attn/direct.h"

namespace kg {

constexpr int QUEUED = KEY_QUEUE - 1; // blocks ahead
static_assert(!KEY_QUEUE || (!INVARIANT && DESCALE != DESCALE_TOKEN),
              "blocks from the segment's first, of one scale");

template <int N> KG_DEV void read_piece(u32 (&w)[N], const u8 *p) {
    struct alignas(N * 4) some_t {
        u32 w[N];
    } x = *(const some_t *)p;
    KG_UNROLL for (int n = 0; n < N; n++) w[n] = x.w[n];
}

// Where the lane's first key, and value, lies in a slot.
struct in_slot_t {
    u32 k, v;
};
KG_DEV in_slot_t in_slot() {
    int lane = (int)lane_id(), i = lane_i(lane), dim = i * V_LANE_DIMS;
    int at = (V_DIM % CHUNK_DIMS != 0 && dim >= V_DIM ? 0 : dim) * KV_BITS / 8;
    u32 k = queue_offset<K_PIECES>(k_token(i, 0), smaller(lane_grp(lane), K_PIECES - 1));
    u32 v = queue_offset<V_PIECES>(TPL * lane_grp(lane), at / 16) + (u32)(at % 16);
    return in_slot_t{opaque(k), opaque(v + TOK * K_PIECES * 16)};
}
// What is outside of a row is some of it: it meets a zero of Q, or is not stored.
KG_DEV void read_keys(k_tile_t &k, const u8 *slot, const in_slot_t &in) {
    int grp = lane_grp((int)lane_id());
    KG_UNROLL for (int row = 0; row < KROWS; row++) KG_UNROLL for (int c = 0; c < K_CHUNKS; c++) {
        bool outside = HEAD_DIM % K_DIMS != 0 && c * NGRP + grp >= K_PIECES;
        int more = outside ? 0 : c * NGRP;
        read_piece(k.w[c][row], slot + queue_further<K_PIECES>(in.k, k_token(0, row), more));
    }
}
KG_DEV void read_values(v_tile_t &v, const u8 *slot, const in_slot_t &in) {
    constexpr int PIECES = CHUNK_DIMS * KV_BITS / 128; // of a part
    int dim = lane_i((int)lane_id()) * V_LANE_DIMS;
    KG_UNROLL for (int part = 0; part < V_PARTS; part++) KG_UNROLL for (int n = 0; n < TPL; n++) {
        bool outside = V_DIM % CHUNK_DIMS != 0 && part * CHUNK_DIMS + dim >= V_DIM;
        int more = outside ? 0 : part * PIECES;
        read_piece(v.w[part][n], slot + queue_further<V_PIECES>(in.v, n, more));
    }
}

KG_DEV void enqueue(u8 *slot, const head_t &h, const keys_t &keys, i32 page, int block, int end) {
    if (block < end) {
        bring_rows<K_PIECES>(slot, h.k, h.k_page, h.k_token, keys, page, block, 0);
        bring_rows<V_PIECES>(slot + TOK * K_PIECES * 16, h.v, h.v_page, h.v_token, keys, page,
                             block, 0);
    }
    copies_end();
}
// Returns the page of the first block that is not on its way.
KG_DEV i32 fill_queue(u8 *queue, const segment_t &g, const role_t &role, const head_t &h,
                      const keys_t &keys) {
    int block = g.block + role.key, by = role.keys;
    if (block >= g.block_end || g.see.last < 0) return 0;
    i32 page = set_page(keys, block, 0), next = set_page(keys, block + by, 0);
    KG_LOOP for (int n = 0; n < QUEUED; n++, block += by) {
        enqueue(queue + n * QUEUE_SLOT, h, keys, page, block, g.block_end);
        page = next;
        next = set_page(keys, block + 2 * by, 0);
    }
    return page;
}

// SHARES_Q: a piece of 16 bytes of each row tile's queries. The next one comes from LDS while one
// is multiplied, the first while copies are asked for.
constexpr int Q_PIECES = Q_WORDS / 4;
struct queries_t {
    u32 w[ROW_TILES][4];
};
KG_DEV void read_queries(queries_t &q, const u8 *lds, int n) {
    if constexpr (!SHARES_Q) return;
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) read_piece(
        q.w[t], (const u8 *)(q_lds((u8 *)lds, t, n / Q_PIECES) + q_word(n % Q_PIECES * 4)));
}
// s[t] = K Q^T for the block. next: the first piece.
KG_DEV void score_shared(scores_t (&s)[ROW_TILES], const k_tile_t &k, queries_t next,
                         const u8 *lds) {
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) s[t] = scores_t{};
    KG_UNROLL for (int n = 0; n < K_CHUNKS * Q_PIECES; n++) {
        queries_t q = next;
        if (n + 1 < K_CHUNKS * Q_PIECES) read_queries(next, lds, n + 1);
        KG_UNROLL for (int half = 0; half < 2; half++) {
            u32 keys[KROWS][2];
            KG_UNROLL for (int row = 0; row < KROWS; row++)
                bytes_to_compute(keys[row], k.w[n / Q_PIECES][row][n % Q_PIECES * 2 + half]);
            KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
                u32 query[2] = {q.w[t][2 * half], q.w[t][2 * half + 1]};
                mma_qk(s[t], keys, query);
            }
        }
    }
}

// Products of a block's keys become what values are weighed with, of all row tiles at once.
KG_DEV void finish_tiles(u32 (&p)[ROW_TILES][P_WORDS], column_t &m, column_t &l, values_t &o,
                         const scores_t (&dots)[ROW_TILES], const head_t &head, int start,
                         const keys_t &keys) {
    float s[ROW_TILES][S_REGS], top[ROW_TILES][COLS];
    bool exceeds = false;
    token_scale_t none;
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) scale_scores(s[t], dots[t], head, t, start, none);
    if (is_edge(head, start, TOK))
        KG_UNROLL for (int t = 0; t < ROW_TILES; t++) mask_scores(s[t], head, t, start, keys);
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        KG_UNROLL for (int c = 0; c < COLS; c++) top[t][c] = s[t][c];
        exceeds |= find_tops(top[t], m, t, s[t]);
    }
    if (any(exceeds)) KG_UNROLL for (int t = 0; t < ROW_TILES; t++) raise_tile(m, l, o, t, top[t]);
    KG_UNROLL for (int t = 0; t < ROW_TILES; t++) {
        scores_to_p(m, l, t, s[t]);
        pack_p(p[t], s[t]);
    }
}

KG_DEV void attend_queued(column_t &m, column_t &l, values_t &o, const q_frag_t &q,
                          const segment_t &g, const role_t &role, const head_t &head,
                          const keys_t &keys, i32 page, const u8 *lds, u8 *queue) {
    int block = g.block + role.key, by = role.keys, slot = 0, far = QUEUED;
    if (block >= g.block_end || g.see.last < 0) return;
    ids_t none = {};
    in_slot_t in = in_slot();
    KG_LOOP for (; block < g.block_end; block += by) {
        int start = block_start(keys, block);
        queries_t first;
        read_queries(first, lds + opaque(0), 0); // or it is read once for all blocks
        meet_wave();                             // all have read what is overwritten
        enqueue(queue + far * QUEUE_SLOT, head, keys, page, block + QUEUED * by, g.block_end);
        page = set_page(keys, block + KEY_QUEUE * by, 0);
        copies_done<QUEUED>();
        meet_wave();
        const u8 *here = queue + slot * QUEUE_SLOT;
        k_tile_t k;
        v_tile_t v;
        scores_t dots[ROW_TILES];
        u32 p[ROW_TILES][P_WORDS];
        read_keys(k, here, in);
        if constexpr (SHARES_Q)
            score_shared(dots, k, first, lds + opaque(0));
        else
            score_block(dots, k, q, head, keys, none, start, lds);
        finish_tiles(p, m, l, o, dots, head, start, keys);
        read_values(v, here, in);
        weigh_values(o, v, p, head, keys, none, start, 0);
        far = slot;
        slot = slot_after(slot, KEY_QUEUE);
    }
}

} // namespace kg
