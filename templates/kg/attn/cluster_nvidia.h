// Parts of an item among a cluster's workgroups, each of which merges some of the quads: four dims
// of a row. What it merges is sent to it (SENDS), or it reads it where sets of keys were.
#pragma once
#include "kg/attn/clusters.h"
#include "kg/attn/join.h"
#include "kg/attn/lds_nvidia.h"

namespace kg {

constexpr int PEER_QUADS = V_DIM / 4; // of a row
constexpr int EACH_QUADS = INBOX.quads;

// --- before the work is known ---------------------------------------------------
// Page numbers wait for lengths, and what rows end with comes last. While lengths are on their way
// a wave visits both, and where queries and outputs are: then it is known, too, where that lies,
// which takes as long as to read it. Of the first item, if items are whole; a batch without tokens
// has nothing to visit.

constexpr bool HAS_ROWS_OF_PAGES = !FLAT && !DENSE && !SPARSE;
KG_DEV void visit_pages(args_t a, u32 seq, u8 *aside) {
    constexpr u32 LINE = 128, SIZE = TABLE_I64 ? 8 : 4;
    u32 line = lane_id() * CLUSTER_SIZE + cluster_rank();
    bool inside = (u64)line * (LINE / SIZE) * (u32)a.page < (u64)a.table_keys;
    const u8 *row = (const u8 *)a.table + (i64)seq * a.table_row * SIZE;
    if (inside) visit(aside, row + line * LINE);
}
// Each lane some of it.
KG_DEV const void *awaited(args_t a) {
    u32 lane = lane_id();
    const void *p = lane == 0 ? a.q : lane == 1 ? a.out : nullptr;
    if (DESCALE == DESCALE_HEAD && lane == 2) p = a.k_descale;
    if (DESCALE == DESCALE_HEAD && lane == 3) p = a.v_descale;
    if (OUT_8BIT && lane == 4) p = a.out_scale;
    if (SINKS != 0 && lane == 5) p = a.sinks;
    return p;
}
KG_DEV void ask_ahead(args_t a, u8 *lds) {
    u8 *aside = lds + LDS_FLAG + 12;
    u32 unit = taker();
    bool visits = thread_id() / WAVE == WAVES - 1 && unit < items_of(a);
    if (!visits || (RAGGED && a.num_tokens == 0)) return;
    if constexpr (HAS_ROWS_OF_PAGES) visit_pages(a, divide(unit, items_of_seq(a)), aside);
    const u8 *p = (const u8 *)awaited(a);
    if (p) visit(aside, p);
}

// --- sent -------------------------------------------------------------------
// A store of another's LDS counts there when it is done, so nobody waits for the cluster or for
// memory. An item's parts may be sent once all have done with what lay there.

KG_DEV u64 *arrived_at(u8 *lds) { return (u64 *)(lds + LDS_ARRIVED); }
KG_DEV u32 *turn_at(u8 *lds, int wave) { return (u32 *)(lds + LDS_TURN) + wave; }

KG_DEV void open_inbox(u8 *lds, int wave) {
    if (thread_id() == 0) arrivals_begin(arrived_at(lds));
    *turn_at(lds, wave) = 0;
}
// Where there is no room apart, sets of keys are where others' parts go. Before rows are put there
// latent attention offers it.
constexpr bool OFFERS = APART || SENDS_ROWS;
KG_DEV void offer_inbox() {
    if constexpr (OFFERS) cluster_arrive();
}
KG_DEV void await_inboxes() {
    if constexpr (OFFERS)
        cluster_wait();
    else
        cluster_meet();
}

// Of the row block.
KG_DEV int rows_there(const segment_t &g) {
    return smaller(larger(g.seq.q_len * GROUP - g.row_block * ROWS, 0), ROWS);
}
KG_DEV void await_parts(const segment_t &g, u8 *lds, int wave, int first, int end) {
    int last = smaller(end, rows_there(g) * PEER_QUADS) - 1;
    int quads = larger(last + 1 - first, 0);
    int rows = quads ? last / PEER_QUADS - first / PEER_QUADS + 1 : 0; // that they are of
    u32 turn = *turn_at(lds, wave);
    await_arrivals(arrived_at(lds), MEMBERS * (u32)(quads * 16 + rows * 8), turn);
    *turn_at(lds, wave) = turn ^ 1;
}

// --- for others -------------------------------------------------------------

KG_DEV void give_quad(u8 *lds, int place, int dim, const float (&x)[4]) {
    if constexpr (SENDS) {
        u32 n = (u32)(place * PEER_QUADS + dim / 4), rank = n / EACH_QUADS;
        u32 at = member((int)late_wave()) * EACH_QUADS + n % EACH_QUADS;
        send_peer(x, lds + LDS_PEER + at * 16, rank, arrived_at(lds));
        return;
    }
    float *to = (float *)(lds + LDS_PEER) + place * PEER_STRIDE + dim;
    *(quad_t *)to = quad_t{x[0], x[1], x[2], x[3]};
}

KG_DEV void give_sum(u8 *lds, int place, sums_t total) {
    if constexpr (SENDS) {
        u32 at = member((int)late_wave()) * ROWS + (u32)place;
        float x[2] = {total.maximum, total.sum};
        u32 first = (u32)(place * PEER_QUADS), last = first + PEER_QUADS - 1; // of the row
        KG_LOOP for (u32 rank = first / EACH_QUADS; rank <= last / EACH_QUADS; rank++)
            send_peer(x, lds + LDS_PEER_ML + at * 8, rank, arrived_at(lds));
        return;
    }
    ((sums_t *)(lds + LDS_PEER_ML))[place] = total;
}

// --- merged -----------------------------------------------------------------

// Of member `who`; n: of the quads that are merged here.
KG_DEV void take_part(float (&part)[4], float (&ml)[2], const u8 *lds, u32 who, int n, int place,
                      int dim) {
    if constexpr (SENDS) {
        const float *quad = (const float *)(lds + LDS_PEER) + ((int)who * EACH_QUADS + n) * 4;
        const float *sum = (const float *)(lds + LDS_PEER_ML) + ((int)who * ROWS + place) * 2;
        KG_UNROLL for (int j = 0; j < 4; j++) part[j] = quad[j];
        KG_UNROLL for (int j = 0; j < 2; j++) ml[j] = sum[j];
        return;
    }
    load_peer(ml, lds + LDS_PEER_ML + place * 8, who);
    load_peer(part, lds + LDS_PEER + (place * PEER_STRIDE + dim) * 4, who);
}

// What all have of a quad. Where it is read, and registers are not short, that of some quads is
// asked for at once.
struct parts_of_quad_t {
    float part[MEMBERS][4], ml[MEMBERS][2];
};
constexpr int QUADS_OF_THREAD = ceil_div(EACH_QUADS, (int)KG_WORKGROUP);
constexpr int PEER_BATCH = SENDS || OCCUPANCY > 1
                               ? 1
                               : smaller(smaller(4, 16 / (int)CLUSTER_SIZE), QUADS_OF_THREAD);
KG_DEV void take_parts(parts_of_quad_t &p, const u8 *lds, int first, int n) {
    KG_UNROLL for (u32 i = 0; i < MEMBERS; i++)
        take_part(p.part[i], p.ml[i], lds, i, n - first, n / PEER_QUADS, n % PEER_QUADS * 4);
}
KG_DEV void merge_peers(args_t a, const segment_t &g, u32 slot, const parts_of_quad_t &p, int n) {
    int place = n / PEER_QUADS, dim = n % PEER_QUADS * 4;
    row_t row = row_at(g, place);
    float x[4] = {0, 0, 0, 0};
    sums_t total = {-INFINITE, 0.0f};
    KG_UNROLL for (u32 i = 0; i < MEMBERS; i++) total.maximum = fmax(total.maximum, p.ml[i][0]);
    float top = total.maximum;
    KG_UNROLL for (u32 i = 0; i < MEMBERS; i++) {
        float w = weight(p.ml[i][0], top);
        total.sum += p.ml[i][1] * w;
        KG_UNROLL for (int j = 0; j < 4; j++) x[j] += w == 0.0f ? 0.0f : w * p.part[i][j];
    }
    pass_quad(a, g, row, slot, place, dim, x, [&] { return factor_of_row(a, g, row, total); });
    bool begins = MERGES_SLICES && !g.whole && n == (int)cluster_rank() * EACH_QUADS;
    if (dim == 0 || begins) pass_sum(a, g, row, slot, place, total);
}

// What goes by way of memory another workgroup may merge; else nobody waits for what was stored.
// Who leaves waits until nobody reads its LDS, and who has sets there until all have read.
KG_DEV void leave_parts(const segment_t &g) {
    if (!MERGES_SLICES && !g.whole)
        cluster_barrier();
    else if constexpr (!SENDS)
        cluster_meet();
    else if constexpr (BY_MATRICES != 0 || SENDS_ROWS)
        barrier();
}

KG_DEV void merge_in_cluster(args_t a, const segment_t &g, u32 slot, u8 *lds, int wave) {
    int first = (int)cluster_rank() * EACH_QUADS;
    int end = smaller(first + EACH_QUADS, ROWS * PEER_QUADS);
    if constexpr (SENDS)
        await_parts(g, lds, wave, first, end);
    else
        cluster_barrier();
    KG_LOOP for (int n = first + (int)late_thread(); n < end; n += PEER_BATCH * KG_WORKGROUP) {
        parts_of_quad_t parts[PEER_BATCH];
        bool exists[PEER_BATCH];
        if (!row_exists(g, n / PEER_QUADS)) break; // nor do those behind it
        KG_UNROLL for (int i = 0; i < PEER_BATCH; i++) {
            int at = n + i * KG_WORKGROUP;
            exists[i] = i == 0 || (at < end && row_exists(g, at / PEER_QUADS));
            take_parts(parts[i], lds, first, exists[i] ? at : n);
        }
        KG_UNROLL for (int i = 0; i < PEER_BATCH; i++) if (exists[i])
            merge_peers(a, g, slot, parts[i], n + i * KG_WORKGROUP);
    }
    leave_parts(g);
}

} // namespace kg
