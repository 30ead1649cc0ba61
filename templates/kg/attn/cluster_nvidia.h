// Parts of an item in the LDS of a cluster's workgroups, each of which merges some of the dims.
#pragma once
#include "kg/attn/clusters.h"
#include "kg/attn/join.h"

namespace kg {

// Four dims of row `place`.
KG_DEV void merge_peers(args_t a, const segment_t &g, u32 slot, const u8 *lds, int place, int dim) {
    row_t row = row_at(g, place);
    float part[CLUSTER_SIZE][4], ml[CLUSTER_SIZE][2], x[4] = {0, 0, 0, 0};
    KG_UNROLL for (u32 n = 0; n < CLUSTER_SIZE; n++) {
        load_peer(ml[n], lds + LDS_PEER_ML + place * 8, n);
        load_peer(part[n], lds + LDS_PEER + (place * PEER_STRIDE + dim) * 4, n);
    }
    sums_t total = {-INFINITE, 0.0f};
    KG_UNROLL for (u32 n = 0; n < CLUSTER_SIZE; n++) total.maximum = fmax(total.maximum, ml[n][0]);
    float top = total.maximum;
    KG_UNROLL for (u32 n = 0; n < CLUSTER_SIZE; n++) {
        float w = weight(ml[n][0], top);
        total.sum += ml[n][1] * w;
        KG_UNROLL for (int j = 0; j < 4; j++) x[j] += w == 0.0f ? 0.0f : w * part[n][j];
    }
    pass_quad(a, g, row, slot, place, dim, x, [&] { return factor_of_row(a, g, row, total); });
    if (dim == 0) pass_sum(a, g, row, slot, place, total);
}

// Who leaves waits until nobody reads its LDS.
KG_DEV void merge_in_cluster(args_t a, const segment_t &g, u32 slot, const u8 *lds) {
    constexpr int QUADS = V_DIM / 4, EACH = ceil_div(ROWS * QUADS, (int)CLUSTER_SIZE);
    cluster_barrier();
    int first = (int)cluster_rank() * EACH, end = smaller(first + EACH, ROWS * QUADS);
    KG_LOOP for (int n = first + (int)late_thread(); n < end; n += KG_WORKGROUP) {
        if (row_exists(g, n / QUADS)) merge_peers(a, g, slot, lds, n / QUADS, n % QUADS * 4);
    }
    if (g.whole) // what goes by way of memory is for another workgroup to merge
        cluster_meet();
    else
        cluster_barrier();
}

} // namespace kg
