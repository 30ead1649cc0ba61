// Long queries on sm_90: keys and values of some blocks lie in LDS for all waves of the
// workgroup, and the next blocks are on their way there. Products are those of groups of four
// waves (kg/attn/lds_nvidia.h).
//
// A matrix of LDS is 64 dims of a set's tokens, in the order of k_place in each block. A lane
// brings one piece of 16 bytes of several rows, and converts what it has brought where the cache
// has another type than the products take (CONVERTS). Where it reads and writes is worked out for
// the first; the others are steps of constants and of one product.
#pragma once
#include "kg/attn/buffer.h"
#include "kg/core/gates.h"
#include "kg/attn/probabilities_nvidia.h"

namespace kg {

constexpr int GROUP_ROWS = 64; // of four waves that multiply together
constexpr int MATRIX_BYTES = SET_KEYS * 128;
constexpr int SLOTS = SETS.raw != 0 ? 2 : SETS.slots; // of matrices
constexpr bool CONVERTS = CONVERTED && !BRINGERS, HAS_RAW = CONVERTS && SETS.raw != 0;
// Copies on their way while a set is worked on; what is raw is out of the way once it is
// converted.
constexpr int AHEAD = HAS_RAW ? SETS.slots : SLOTS - 1;

// --- keys and values ----------------------------------------------------------

// KEY_QUEUE: of rows as they come, a piece in that order in which lanes that read keys, or values,
// of several tokens meet all banks.
KG_DEV int turn_of(int token) { return ((token & 1) ^ token >> 3) << 2 | (token >> 2 & 1) << 1; }
template <int PIECES> KG_DEV u32 queue_offset(int token, int piece) {
    return (u32)(token * PIECES + (PIECES % 8 ? piece : piece ^ turn_of(token))) * 16;
}
// So many tokens and pieces on, none of whose bits those before have.
template <int PIECES> KG_DEV u32 queue_further(u32 offset, int tokens, int pieces = 0) {
    constexpr bool TURNS = PIECES % 8 == 0;
    u32 low = (u32)(turn_of(tokens) ^ pieces % 8) * 16;
    u32 high = (u32)(tokens * PIECES + (TURNS ? pieces / 8 * 8 : pieces)) * 16;
    return (TURNS ? offset ^ low : offset) + high;
}

// What a lane brings of rows of PIECES pieces, and where its row lies in the set. Where pieces
// are converted in place a lane too many must not.
template <int PIECES> struct share_of_rows {
    static constexpr int LANES = lanes_of_row(PIECES), AT_ONCE = rows_at_once(PIECES);
    int row;
    u32 place;
};
template <int PIECES> KG_DEV share_of_rows<PIECES> share_of_lane(int wave) {
    int row = row_of_lane<PIECES>(), first = wave * WAVE_KEYS;
    if constexpr (KEY_QUEUE != 0)
        return {row, opaque(queue_offset<PIECES>(row, (int)piece_of_lane<PIECES>(0)))};
    return {row, (u32)(first / TOK * TOK + k_place(first % TOK + row))};
}
template <int PIECES> KG_DEV bool is_one_too_many(int first) {
    constexpr int LANES = lanes_of_row(PIECES);
    if constexpr (PIECES % LANES == 0 && LANES * rows_at_once(PIECES) == WAVE) return false;
    int lane = (int)lane_id();
    return first + lane % LANES >= PIECES || lane / LANES >= rows_at_once(PIECES);
}
// Of a piece in the matrices, the rows `step` further on. The bits of k_place are those of
// the token, in another order.
KG_DEV u32 matrix_offset(u32 place, u32 piece, int step) {
    u32 more = (u32)k_place(step);
    return piece / 8 * MATRIX_BYTES + (place + more) * 128 + ((piece ^ place ^ more) % 8) * 16;
}
template <int PIECES>
KG_DEV u32 raw_offset(const share_of_rows<PIECES> &s, int wave, u32 piece, int step) {
    return ((u32)(wave * WAVE_KEYS + s.row + step) * PIECES + piece) * 16;
}

// row_at(n): the lane's first piece of its row in the cache, `n` rows further on; asked in order.
template <int PIECES, class F>
KG_DEV void bring_each(u8 *to, const share_of_rows<PIECES> &mine, int wave, const F &row_at) {
    KG_UNROLL for (int n = 0; n < WAVE_KEYS; n += mine.AT_ONCE) {
        const u8 *row = row_at(n);
        KG_UNROLL for (int first = 0; first < PIECES; first += mine.LANES) {
            u32 piece = piece_of_lane<PIECES>(first), more = piece - piece_of_lane<PIECES>(0);
            bool brings = !CONVERTS || !is_one_too_many<PIECES>(first);
            u32 at = KEY_QUEUE ? queue_further<PIECES>(mine.place, n, first)
                     : HAS_RAW ? raw_offset(mine, wave, piece, n)
                               : matrix_offset(mine.place, piece, n);
            if (brings) copy_16(to + at, row + more * 16u);
        }
    }
}

// The wave's keys, or values, of a set. `page`: as set_page has it.
template <int PIECES>
KG_DEV void bring_rows(u8 *to, const u8 *from, i64 page_bytes, int token_bytes, const keys_t &keys,
                       i32 page, int block, int wave) {
    share_of_rows<PIECES> mine = share_of_lane<PIECES>(wave);
    int start = first_token(keys, block, wave);
    from += piece_of_lane<PIECES>(0) * 16;
    if constexpr (SHARED_ID) {
        from += inside_pool(keys, page) * page_bytes;
        if (start >= keys.first && start + WAVE_KEYS - 1 <= keys.last) {
            int slot = PAGE == TOK && WAVE_KEYS == TOK ? 0 : slot_of(keys, start, start);
            from += (u32)(slot + mine.row) * (u32)token_bytes;
            u32 step = (u32)mine.AT_ONCE * (u32)token_bytes;
            bring_each(to, mine, wave, [&](int n) {
                if (n) from = settled(from + step);
                return from;
            });
            return;
        }
    }
    bring_each(to, mine, wave, [&](int n) {
        const u8 *p = from;
        if constexpr (!SHARED_ID)
            p += inside_pool(keys, (i32)shuffle((u32)page, (u32)(mine.row + n))) * page_bytes;
        int token = start + mine.row + n;
        return p + (u32)slot_of(keys, token, SHARED_ID ? start : token) * (u32)token_bytes;
    });
}

// What the lane has brought, of the wave's block: some rows are read before the first of them is
// converted. Of 8 bits a lane reads halves of a piece, in that order in which eight lanes that
// write, and sixteen that read, meet all banks.
constexpr int READS = NEW_PIECES == 2 ? 2 : 1; // of a piece
constexpr int MADE = NEW_PIECES / READS;       // pieces, of what is read
struct alignas(16 / READS) read_t {
    u32 w[4 / READS];
};
KG_DEV void put_piece(u8 *to, const u32 *w) { *(piece_t *)to = piece_t{{w[0], w[1], w[2], w[3]}}; }
KG_DEV void put_converted(u8 *to, u32 place, u32 piece, int step, const read_t &in) {
    u32 out[4 * MADE];
    convert_words<4 / READS>(out, in.w);
    KG_UNROLL for (u32 j = 0; j < (u32)MADE; j++)
        put_piece(to + matrix_offset(place, piece + j, step), out + 4 * j);
}
template <int PIECES> KG_DEV void convert_rows(u8 *to, const u8 *from, int wave) {
    share_of_rows<PIECES> mine = share_of_lane<PIECES>(wave);
    constexpr int EACH = smaller(WAVE_KEYS / rows_at_once(PIECES), 4);
    KG_UNROLL for (int first = 0; first < PIECES; first += mine.LANES) {
        u32 piece = piece_of_lane<PIECES>(first);
        u32 row = (u32)mine.row / (8 / smaller(8, mine.LANES));
        u32 turned = READS == 2 ? (piece / 4 ^ piece / 8 ^ row) & 1 : 0;
        if (is_one_too_many<PIECES>(first)) continue;
        KG_UNROLL for (int some = 0; some < WAVE_KEYS; some += EACH * mine.AT_ONCE) {
            read_t in[EACH][READS];
            KG_UNROLL for (int n = 0; n < EACH; n++) KG_UNROLL for (u32 i = 0; i < READS; i++) {
                int step = some + n * mine.AT_ONCE;
                u32 at = HAS_RAW ? raw_offset(mine, wave, piece, step)
                                 : matrix_offset(mine.place, piece, step);
                in[n][i] = *(const read_t *)(from + at + (turned ^ i) * 8);
            }
            KG_UNROLL for (int n = 0; n < EACH; n++) KG_UNROLL for (u32 i = 0; i < READS; i++)
                put_converted(to, mine.place, piece * NEW_PIECES + (turned ^ i) * MADE,
                              some + n * mine.AT_ONCE, in[n][i]);
        }
    }
}

// --- products -----------------------------------------------------------------

// Templates, so that no other kernel has them. T: row tiles.

// 16 dims of the wave's rows.
KG_DEV void query_words(u32 (&a)[4], const q_frag_t &q, int step) {
    const u32 *row = q.w[0][step / 2] + step % 2 * 2;
    const u32 *other = q.w[Q_IN_LDS ? 0 : 1][step / 2] + step % 2 * 2;
    a[0] = row[0], a[1] = other[0], a[2] = row[1], a[3] = other[1];
}

// s = Q K^T of a set, on its way.
template <int T>
KG_DEV void score_set(acc_t (&s)[T][SET_BLOCKS], const q_frag_t &q, const u8 *queries, const u8 *k,
                      int wave) {
    matrix_t keys = matrix_at(k), rows = matrix_at(q_matrix(queries, wave * WAVE_ROWS, 0));
    products_begin();
    KG_UNROLL for (int step = 0; step < HEAD_DIM / 16; step++) {
        u32 at = (u32)(step / 4 * MATRIX_BYTES + step % 4 * 32);
        u32 q_at = (u32)(step / 4 * (64 * 128) + step % 4 * 32);
        if constexpr (Q_IN_LDS) {
            multiply<SET_BLOCKS, false>(s, 0, further(rows, q_at), further(keys, at), step != 0);
        } else {
            u32 a[4];
            query_words(a, q, step);
            multiply<SET_BLOCKS, false>(s, 0, a, further(keys, at), step != 0);
        }
    }
    products_end();
}

// o += P V of a set, on its way.
template <int T>
KG_DEV void weigh_set(acc_t (&o)[T][O_TILES], const u32 (&p)[SET_BLOCKS][4], const u8 *v) {
    constexpr int AT_ONCE = O_TILES % 8 == 0 ? 8 : 4, REST = O_TILES % 4 ? O_TILES % 4 : 4;
    matrix_t values = widened(matrix_at(v), MATRIX_BYTES);
    products_begin();
    KG_UNROLL for (int b = 0; b < SET_BLOCKS; b++)
        KG_UNROLL for (int n = 0; n < O_TILES; n += AT_ONCE) {
        matrix_t at = further(values, (u32)(n / 4 * MATRIX_BYTES + b * (TOK * 128)));
        if (n + AT_ONCE <= O_TILES)
            multiply<AT_ONCE <= O_TILES ? AT_ONCE : REST, true>(o, n, p[b], at, true);
        else
            multiply<REST, true>(o, n, p[b], at, true);
    }
    products_end();
}

// --- the way through a segment ----------------------------------------------------

// BRINGERS: what there is to draw (kg/attn/lots_nvidia.h), and what has been counted for that.
struct lots_t {
    u32 all;    // 0: work is cut
    u32 narrow; // of sequences with few rows
    u64 share;  // of the first lots that these are, in 2^-32, rounded up
    u32 piece;  // blocks at most of such a lot
};
struct account_t {
    u32 units, few;          // of the line, if it is cut; of narrow items
    u32 narrow, wide;        // items
    u32 least, least_narrow; // units that a workgroup has at least, if all of a kind are whole
};
// What they and the waves with rows tell each other of the slots.
struct gates_t {
    int places[WAVES];                     // place_of_parts
    gate_t keys_there[3], values_there[3]; // all their lanes arrive
    gate_t keys_read[3], values_read[3];   // each wave with rows
    gate_t raw_keys[3], raw_values[3];     // what is to be converted is there
    gate_t q_there[2], q_read[2];          // the same of a segment's queries, of each group
    gate_t maps;                           // each has been written
    gate_t found[KG_ATTN_FOUND], left[KG_ATTN_FOUND];       // what waits of a segment; it need not
    u32 sets[WAVES + BRINGERS], segments[WAVES + BRINGERS]; // that a wave has gone through
    u32 drawn[2];                                           // the next lot, by turns
    lots_t lots;
    account_t accounts[KG_ATTN_BRINGERS]; // of each wave that brings
    u32 pieces[KG_ATTN_BRINGERS];         // the same, once it is known how long they are
};
KG_DEV gates_t *gates_of(u8 *lds) { return (gates_t *)(lds + LDS_GATES); }
static_assert(!BRINGERS || (SLOTS <= 3 && SETS.slots <= 3), "a gate a slot");
static_assert(sizeof(gates_t) <= KG_ATTN_GATE_BYTES || !BRINGERS, "room for them");

// Keys are a set ahead of values: the scores of a set follow the values of the set before
// through the matrix units, and while values are weighed scores become probabilities. Step i,
// from -1 on, brings keys of set i + 1 and values of set i, AHEAD steps before they are needed.
struct ring_t {
    u8 *slots;
    int k, v;         // slots of the step
    int raw;          // slot of what is to be converted next
    i32 page, v_page; // of the sets of keys and values that are brought next, as set_page has them
    gates_t *gates;
    u32 time, v_time; // that sets have been in the slots of the step
    u32 segments;
};
// Bytes of keys in a raw slot, where rows come as they are or in boxes.
constexpr int RAW_KEYS = BRINGERS ? ceil_div(K_PIECES, 8) * MATRIX_BYTES : SET_KEYS * K_PIECES * 16;
KG_DEV u8 *raw_slot(const ring_t &r, int slot) { return r.slots + slot * SETS.raw; }
KG_DEV u8 *k_slot(const ring_t &r, int slot) {
    return raw_slot(r, SETS.slots) + slot * RING_SLOT_BYTES;
}
KG_DEV u8 *v_slot(const ring_t &r, int slot) { return k_slot(r, slot) + SETS.k; }
// Behind all sets, of keys and then of values.
constexpr int SCALE_SLOTS = SETS.slots + KG_ATTN_SCALE_SLOTS;
KG_DEV float *scales_of_set(const ring_t &r, u32 set) {
    constexpr int EACH = kg_attn_scales_bytes(SET_KEYS);
    if constexpr (!BRINGS_SCALES) return nullptr;
    u32 slot = set % (u32)SCALE_SLOTS;
    return (float *)(r.slots + SETS.bytes - SCALE_SLOTS * EACH + slot * (u32)EACH);
}
// Of a block those of a lane's scores follow each other.
KG_DEV int place_of_scale(int token) { return 4 * (token / 2 % 4) + 2 * (token / 8) + token % 2; }
static_assert(!BRINGS_SCALES || (IN_ORDER && S_REGS == 4),
              "scores of tokens 2 n, behind it, and 8 on");
// Of the step that has been scored, from a block of the set on.
KG_DEV const float *scales_of_step(const ring_t &r, int block) {
    if constexpr (!BRINGS_SCALES) return nullptr;
    return scales_of_set(r, r.v_time * SLOTS + (u32)r.v) + block * TOK;
}
KG_DEV int slot_after(int slot, int slots) { return slot + 1 == slots ? 0 : slot + 1; }
KG_DEV int slot_before(int slot, int slots) { return slot == 0 ? slots - 1 : slot - 1; }

// What a step brings, of which set i begins with `block`.
KG_DEV void bring(u8 *k, u8 *v, const ring_t &r, const head_t &h, const keys_t &keys, int first,
                  int block, int end, int wave) {
    int next = block + SET_BLOCKS;
    if (next < end) bring_rows<K_PIECES>(k, h.k, h.k_page, h.k_token, keys, r.page, next, wave);
    if (block >= first && block < end)
        bring_rows<V_PIECES>(v, h.v, h.v_page, h.v_token, keys, r.v_page, block, wave);
    copies_end();
}
KG_DEV void next_page(ring_t &r, const keys_t &keys, int block, int wave) {
    r.v_page = r.page;
    r.page = set_page(keys, block + 2 * SET_BLOCKS, wave);
}

// Brings what a step reads, of which set i begins with `block`.
KG_DEV void bring_step(ring_t &r, u8 *k, u8 *v, const head_t &h, const keys_t &keys, int first,
                       int block, int end, int wave) {
    bring(k, v, r, h, keys, first, block, end, wave);
    next_page(r, keys, block, wave);
}

KG_DEV bool is_empty(const segment_t &g) { return g.block >= g.block_end || g.see.last < 0; }
// INVARIANT: by their place in the sequence, wherever a window begins.
KG_DEV int first_set(const segment_t &g) {
    return INVARIANT ? g.block / SET_BLOCKS * SET_BLOCKS : g.block;
}
KG_DEV ring_t fill_ring(u8 *slots, const segment_t &g, const head_t &h, const keys_t &keys,
                        int wave) {
    int first = first_set(g), end = g.block_end;
    ring_t r = {slots, 0, SLOTS - 1, 0, set_page(keys, first, wave), 0};
    KG_UNROLL for (int n = 0; n < AHEAD; n++) {
        int block = first + (n - 1) * SET_BLOCKS;
        u8 *k = HAS_RAW ? raw_slot(r, n) : k_slot(r, n);
        bring_step(r, k, HAS_RAW ? k + RAW_KEYS : v_slot(r, n - 1), h, keys, first, block, end,
                   wave);
    }
    return r;
}

// What the lane has brought for the step, as products take it. The fence waits for all copies that
// are on their way, so these have had a step's time.
KG_DEV void convert_step(const ring_t &r, int wave) {
    u8 *k = k_slot(r, r.k), *v = v_slot(r, r.v), *raw = raw_slot(r, r.raw);
    copies_done<AHEAD - 1>();
    convert_rows<K_PIECES>(k, HAS_RAW ? raw : k, wave);
    convert_rows<V_PIECES>(v, HAS_RAW ? raw + RAW_KEYS : v, wave);
    show_lds();
}
// The waves that share sets.
KG_DEV void meet_sharers() {
    if constexpr (KEY_GROUPS > 1)
        meet_at<ROW_WAVES * WAVE>(1 + (int)thread_id() / (ROW_WAVES * WAVE));
    else
        barrier();
}
// What was brought for the step is there for all of them: its keys, and values.
KG_DEV void await_keys(const ring_t &r) {
    if constexpr (BRINGERS != 0) {
        gate_await(&r.gates->keys_there[r.k], r.time);
    } else {
        if constexpr (!CONVERTS) copies_done<AHEAD - 1>();
        meet_sharers(); // whose products with what the next copies overwrite are done
    }
}
KG_DEV void await_values(const ring_t &r) {
    if constexpr (BRINGERS != 0) gate_await(&r.gates->values_there[r.v], r.v_time);
}
KG_DEV void await_last_values(const ring_t &r) {
    if constexpr (BRINGERS != 0)
        await_values(r);
    else
        await_keys(r);
}
// The wave's products with what lies in a slot are done.
KG_DEV void keys_are_read(const ring_t &r, int slot) {
    if constexpr (BRINGERS != 0) gate_arrive_wave(&r.gates->keys_read[slot]);
}
KG_DEV void queries_are_read(const ring_t &r, int wave) {
    if constexpr (BRINGS_Q) gate_arrive_wave(&r.gates->q_read[wave / 4]);
}
KG_DEV void values_are_read(const ring_t &r, int slot) {
    if constexpr (BRINGERS != 0) gate_arrive_wave(&r.gates->values_read[slot]);
}
// Where a raw slot's rows were that are converted.
KG_DEV void bring_raw(ring_t &r, const head_t &h, const keys_t &keys, int first, int block, int end,
                      int wave) {
    u8 *raw = raw_slot(r, r.raw);
    bring_step(r, raw, raw + RAW_KEYS, h, keys, first, block, end, wave);
    r.raw = slot_after(r.raw, SETS.slots);
}
// Step i, of which set i begins with `block`, is under way: what comes AHEAD of it is brought, and
// the next step's rows are converted.
KG_DEV void start_step(ring_t &r, const head_t &h, const keys_t &keys, int first, int block,
                       int end, int wave) {
    if constexpr (!HAS_RAW && !BRINGERS)
        bring_step(r, k_slot(r, r.v), v_slot(r, slot_before(r.v, SLOTS)), h, keys, first,
                   block + AHEAD * SET_BLOCKS, end, wave);
    r.v = r.k;
    r.k = slot_after(r.k, SLOTS);
    r.v_time = r.time;
    r.time += r.k == 0;
    if constexpr (CONVERTS) convert_step(r, wave);
    if constexpr (HAS_RAW)
        bring_raw(r, h, keys, first, block + (AHEAD + 1) * SET_BLOCKS, end, wave);
}

// Who multiplies: four waves together, a set of keys with rows of their own; or each wave by
// itself (kg/attn/few_rows_nvidia.h).
struct together_t {
    static constexpr int BLOCKS = SET_BLOCKS; // of a set that a wave has scores of
    static constexpr bool AT_ONCE = false;    // products go on while the wave does
};
KG_DEV int own_block(together_t, int) { return 0; }
// BRINGERS: a group's products follow each other; meanwhile the other has a softmax.
constexpr int TURN_OF_GROUP = 4, BOTH_GROUPS = 8 * WAVE;
KG_DEV void take_turn(together_t, int wave) {
    if constexpr (BRINGERS != 0) meet_at<BOTH_GROUPS>(TURN_OF_GROUP + wave / 4);
}
KG_DEV void pass_turn(together_t, int wave) {
    if constexpr (BRINGERS != 0) say_at<BOTH_GROUPS>(TURN_OF_GROUP + (wave / 4 ^ 1));
}
template <int T>
KG_DEV void score_own(together_t, acc_t (&s)[T][SET_BLOCKS], const q_frag_t &q, const u8 *queries,
                      const u8 *k, int wave) {
    score_set(s, q, queries, k, wave);
}
template <int T>
KG_DEV void weigh_own(together_t, acc_t (&o)[T][O_TILES], const u32 (&p)[SET_BLOCKS][4],
                      const u8 *v, int) {
    weigh_set(o, p, v);
}

// All waves go through the segment together. end: of the blocks that the wave's rows see.
template <class WAY, int T>
KG_DEV void attend_buffered(WAY way, column_t &m, column_t &l, acc_t (&o)[T][O_TILES],
                            const q_frag_t &q, args_t a, const segment_t &g, const head_t &head,
                            const keys_t &keys, const u8 *queries, ring_t r, u8 *slots, int wave,
                            int end) {
    if (is_empty(g)) return;
    constexpr int B = WAY::BLOCKS;
    int first = first_set(g), mine = own_block(way, wave);
    acc_t dots[T][B];
    r.slots = slots; // of which the compiler knows that they are LDS
    if constexpr (Q_IN_LDS && !BRINGERS) {
        show_lds();
        r = fill_ring(slots, g, head, keys, wave);
    }
    u32 p[B][4];
    float alpha[ROW_TILES];
    if constexpr (CONVERTS) convert_step(r, wave);
    if constexpr (HAS_RAW)
        bring_raw(r, head, keys, first, first + (AHEAD - 1) * SET_BLOCKS, g.block_end, wave);
    await_keys(r);
    score_own(way, dots, q, queries, k_slot(r, r.k), wave);
    start_step(r, head, keys, first, first - SET_BLOCKS, g.block_end, wave);
    products_done<0>();
    settle(dots);
    keys_are_read(r, r.v);
    float scores[B][ROW_TILES][S_REGS];
    to_probabilities(scores, alpha, m, l, dots, a, head, keys, first + mine, end,
                     scales_of_step(r, mine));
    pack_set(p, scores, BRINGERS || weighs_set(first + mine, end));
    KG_LOOP for (int block = first + SET_BLOCKS; block < g.block_end; block += SET_BLOCKS) {
        float s[B][ROW_TILES][S_REGS];
        await_keys(r);
        take_turn(way, wave);
        score_own(way, dots, q, queries, k_slot(r, r.k), wave);
        if constexpr (WAY::AT_ONCE) keys_are_read(r, r.k);
        await_values(r);
        int weighed = r.v;
        weigh_own(way, o, p, v_slot(r, weighed), wave);
        if constexpr (WAY::AT_ONCE) values_are_read(r, weighed);
        pass_turn(way, wave);
        start_step(r, head, keys, first, block - SET_BLOCKS, g.block_end, wave);
        products_done<1>();
        settle(dots);
        if constexpr (!WAY::AT_ONCE) keys_are_read(r, r.v);
        bool raised = to_probabilities(s, alpha, m, l, dots, a, head, keys, block + mine, end,
                                       scales_of_step(r, mine));
        products_done<0>();
        settle(o);
        if constexpr (!WAY::AT_ONCE) values_are_read(r, weighed);
        if (raised) KG_UNROLL for (int t = 0; t < T; t++) scale_column(o[t], 0, alpha[t]);
        pack_set(p, s, BRINGERS || weighs_set(block + mine, end));
    }
    if constexpr (!WAY::AT_ONCE) queries_are_read(r, wave);
    await_last_values(r);
    weigh_own(way, o, p, v_slot(r, r.v), wave);
    products_done<0>();
    settle(o);
    values_are_read(r, r.v);
}

} // namespace kg
