// Work that is drawn, where a third group of waves finds it (kg/attn/bringers_nvidia.h). A cut
// gives a workgroup its part of the line before anybody knows how fast it is, and what a cut goes
// through is merged. Where items are short beside the work of a workgroup, or get short towards the
// end, as row blocks under a causal mask do, they stay whole: these are lots, the longest of a
// sequence first, and who is done draws the next. Lots of sequences with few rows (narrow), as
// those of decodes, come between the others (wide), so that memory and products are busy at the
// same time; items of these that are too long are lots in pieces.
#pragma once
#include "kg/attn/bring_sets_nvidia.h"

namespace kg {

KG_DEV bool is_narrow(const seq_t &s) { return s.q_len * GROUP <= WAVE_ROWS; }

// --- what there is to draw ------------------------------------------------------------

KG_DEV u32 more(u32 a, u32 b) { return a > b ? a : b; }

// What all lanes of the group have counted. number: of the wave.
KG_DEV account_t add_up(account_t x, account_t (&said)[KG_ATTN_BRINGERS], int number) {
    said[number] = account_t{wave_sum(x.units), wave_sum(x.few),   wave_sum(x.narrow),
                             wave_sum(x.wide),  wave_max(x.least), wave_max(x.least_narrow)};
    meet_bringers();
    x = said[0];
    KG_UNROLL for (int wave = 1; wave < BRINGERS; wave++) {
        x.units += said[wave].units, x.few += said[wave].few;
        x.narrow += said[wave].narrow, x.wide += said[wave].wide;
        x.least = more(x.least, said[wave].least);
        x.least_narrow = more(x.least_narrow, said[wave].least_narrow);
    }
    return x;
}

// Measured: items that get short towards the end may be as long as all that a workgroup has.
KG_DEV u32 least_for(args_t a, const seq_t &s) {
    if (s.items > 0x7fffffffu / (u32)lines_of(a)) return ~0u; // offsets that fall
    sight_t last = sight_of(a, s, row_blocks_of(s.q_len) - 1), first = sight_of(a, s, 0);
    u32 longest = units_for(a, s, blocks_in(a, last));
    if (is_narrow(s)) return longest * (CONVERTED ? 4 : 2);
    if (units_for(a, s, blocks_in(a, first)) > longest / 4) return longest * 8;
    return longest > ITEM_COST ? longest - ITEM_COST : 0;
}

// Each lane of the group counts some of the sequences.
template <class F> KG_DEV void each_sequence(args_t a, int number, const F &count) {
    KG_LOOP for (int n = number * WAVE + (int)lane_id(); n < lines_of(a); n += BRINGERS * WAVE)
        count(seq_at(a, n));
}
KG_DEV account_t account_of(args_t a, gates_t *gates, int number) {
    account_t all = {};
    each_sequence(a, number, [&](const seq_t &s) {
        u32 least = s.items ? least_for(a, s) : 0, units = units_of(s, false);
        bool narrow = is_narrow(s) && least != ~0u; // else nothing is drawn
        all.units += units;
        all.few += narrow ? units : 0;
        all.narrow += narrow ? s.items : 0;
        all.wide += narrow ? 0 : s.items;
        all.least = more(all.least, narrow ? 0 : least);
        all.least_narrow = more(all.least_narrow, narrow ? least : 0);
    });
    return add_up(all, gates->accounts, number);
}

// Narrow items that are too long beside a workgroup's work are cut in pieces, which are merged.
constexpr bool CUTS_NARROW = !INVARIANT;
constexpr u32 NARROW_UNITS = SOON_FEW ? FEW_UNITS : WAVES; // of a block
constexpr u32 PIECES_EACH = ROWS / SLOT_ROWS, LEAST_PIECE = 1024 / TOK, UNCUT = 1 << 24;
KG_DEV u32 piece_for(args_t a, const account_t &t, u32 each) {
    constexpr u32 SLOTS_EACH = 2 * ROWS / SLOT_ROWS;
    u32 most = (SLOTS_EACH - PIECES_EACH) * takers_of(a); // each item may have a short piece
    if (!CUTS_NARROW || t.wide == 0 || t.narrow > most || t.least_narrow <= each) return UNCUT;
    u32 units = each / PIECES_EACH + 1;
    u32 piece = ((units << a.unit_shift) + NARROW_UNITS - 1) / NARROW_UNITS;
    return (more(piece, LEAST_PIECE) + SET_BLOCKS - 1) / SET_BLOCKS * SET_BLOCKS;
}
KG_DEV u32 pieces_of(const lots_t &lots, const seq_t &s) {
    if (!CUTS_NARROW || !is_narrow(s)) return 1;
    return s.blocks > lots.piece ? divide(s.blocks + lots.piece - 1, lots.piece) : 1;
}
KG_DEV u32 lots_in(const lots_t &lots, const seq_t &s) { return s.items * pieces_of(lots, s); }

// All of the group.
KG_DEV u32 count_narrow(args_t a, gates_t *gates, const lots_t &lots, int number) {
    u32 all = 0;
    each_sequence(a, number, [&](const seq_t &s) { all += is_narrow(s) ? lots_in(lots, s) : 0; });
    gates->pieces[number] = wave_sum(all);
    meet_bringers();
    all = 0;
    KG_UNROLL for (int wave = 0; wave < BRINGERS; wave++) all += gates->pieces[wave];
    return all;
}
// Narrow lots come evenly among the others; where memory has time for them, among all but the last
// of these, which are short.
constexpr float LAST_WIDE = 0.4f;
KG_DEV u32 last_wide(const account_t &t) {
    bool waits = (u64)t.few * KV_BITS > (u64)(t.units - t.few) * 16;
    return waits ? 0 : (u32)(t.wide * LAST_WIDE);
}
KG_DEV lots_t lots_of(args_t a, gates_t *gates, const account_t &t, int number) {
    u32 each = divide(t.units, takers_of(a));
    lots_t lots = {0, t.narrow, 0, piece_for(a, t, each)};
    bool cuts = lots.piece != UNCUT;
    if (t.least > each || (t.least_narrow > each && !cuts)) return lots;
    if (cuts) lots.narrow = count_narrow(a, gates, lots, number);
    lots.all = lots.narrow + t.wide;
    u32 first = lots.all - last_wide(t);
    if (first) lots.share = (((u64)lots.narrow << 32) + first - 1) / first;
    return lots;
}

// --- a workgroup's lots ---------------------------------------------------------------

struct lot_t {
    bool narrow;
    u32 index; // of its kind
};
KG_DEV u32 narrow_before(const lots_t &lots, u32 lot) {
    u32 n = (u32)((u64)lot * lots.share >> 32);
    return n < lots.narrow ? n : lots.narrow;
}
KG_DEV lot_t lot_at(const lots_t &lots, u32 lot) {
    u32 before = narrow_before(lots, lot);
    bool narrow = narrow_before(lots, lot + 1) > before;
    return lot_t{narrow, narrow ? before : lot - before};
}

// work_t of one that draws: `unit` is the number of its lot, `seq_start` that of the first of the
// sequence's, of its kind, and of the other kind the cut says where its last one was.
KG_DEV u32 &other_start(work_t &w) { return w.cut.extra; }
KG_DEV u32 &other_line(work_t &w) { return w.jump; }

// The sequence of the lot, from where the last lot of its kind was.
KG_DEV void find_lot(work_t &w, args_t a, const lots_t &lots) {
    if (w.unit >= w.end) return;
    lot_t lot = lot_at(lots, w.unit);
    u32 start = w.seq_start, line = (u32)w.seq.line;
    if (lot.narrow != is_narrow(w.seq)) {
        start = other_start(w), other_start(w) = w.seq_start;
        line = other_line(w), other_line(w) = (u32)w.seq.line;
    } else if (lot.index - start < lots_in(lots, w.seq)) {
        return;
    }
    KG_LOOP for (; line < (u32)lines_of(a); line += WAVE) {
        seq_t mine = seq_at(a, (int)(line + lane_id()));
        u32 its = is_narrow(mine) == lot.narrow ? lots_in(lots, mine) : 0, behind = sum_below(its);
        u64 beyond = ballot(start + behind > lot.index);
        u32 lane = first_bit(beyond | 1ull << (WAVE - 1));
        start += read_lane(behind, lane);
        if (!beyond) continue;
        w.seq = seq_of_lane(a, mine, lane);
        w.seq_start = start - read_lane(its, lane);
        return;
    }
    w.end = w.unit;
}

KG_DEV work_t first_lot(args_t a, const lots_t &lots) {
    work_t w;
    w.unit = taker();
    w.end = lots.all;
    w.seq = seq_at(a, 0);
    w.seq_start = 0;
    w.cut = cut_t{0, 0, opaque(taker())};
    other_line(w) = 0;
    find_lot(w, a, lots);
    return w;
}

// The number of the next, for one lane to ask. Who is the last to ask puts the counter back. Where
// it was not at rest, each workgroup has lots of its own.
KG_DEV u32 draw_lot(args_t a, const work_t &w) {
    constexpr int LAST = sizeof a.workspace->arrived / sizeof a.workspace->arrived[0] - 1;
    u32 takers = takers_of(a), lots = w.end;
    if (lots <= takers) return lots;
    u64 *counter = a.workspace->arrived + opaque((u32)LAST); // no registers wait for it
    u64 before = atomic_count(counter, counted<u64>(a.ticket));
    arrival_t how = arrival_of(before, a.ticket, lots);
    if (how == ARRIVED_LAST) store(counter, COUNTER_AT_REST<u64>);
    if (how != ARRIVED_AMISS) return takers + (u32)(before - COUNTER_AT_REST<u64>);
    report_workspace(a, w.seq.index);
    return w.unit + takers;
}

// Item n: row blocks with the most keys first, of as many heads at a time as the L2 has room for.
KG_DEV void place_item(segment_t &g, args_t a, const seq_t &s, u32 n) {
    constexpr float ROOM = 16 << 20, TOKEN_BYTES = (HEAD_DIM + V_DIM) * KV_BITS / 8;
    int row_blocks = row_blocks_of(s.q_len);
    int fit = (int)(ROOM * rcp(TOKEN_BYTES * (float)larger(s.kv_len, 1)));
    int heads = larger(smaller(fit, a.kv_heads), 1);
    int first = (int)divide(n, (u32)(heads * row_blocks)) * heads;
    u32 rest = n - (u32)(first * row_blocks);
    heads = smaller(heads, a.kv_heads - first);
    int turn = (int)divide(rest, (u32)heads);
    g.row_block = row_blocks - 1 - turn;
    g.kv_head = first + (int)rest - turn * heads;
}

// Of the item, which has as many lots as pieces.
KG_DEV void take_piece(segment_t &g, u32 piece, u32 pieces, u32 first_lot) {
    u32 all = (u32)(g.block_end - g.block);
    int each = ceil_div((int)divide(all + pieces - 1, pieces), SET_BLOCKS) * SET_BLOCKS;
    g.block += (int)piece * each;
    g.block_end = smaller(g.block + each, g.block_end);
    g.item_start = first_lot;
    g.item_end = g.item_start + pieces;
    g.part = g.item_start + piece;
    g.whole = false;
}
// A sequence's items, and piece by piece of all heads, which are neighbours in memory.
KG_DEV segment_t segment_of_lot(const work_t &w, args_t a, const lots_t &lots) {
    segment_t g;
    u32 n = lot_at(lots, w.unit).index - w.seq_start, pieces = pieces_of(lots, w.seq);
    u32 piece = pieces > 1 ? divide(n, w.seq.items) : 0;
    n -= piece * w.seq.items;
    place_item(g, a, w.seq, n);
    g.seq = w.seq;
    g.see = sight_of(a, w.seq, g.row_block);
    g.block = first_block(a, g.see.first);
    g.block_end = g.block + (int)blocks_in(a, g.see);
    g.item_start = g.item_end = g.next = g.part = 0;
    g.whole = g.shares = true;
    if (pieces > 1) take_piece(g, piece, pieces, w.seq_start + n * pieces);
    return g;
}

} // namespace kg
