#include "kg/prelude/prelude_attn_merge.h"
// Partial results of attention, each with its sum of exponentials, as one.
// Formula and arguments: <kgen/attn_merge_args.h>.
//
// A lane takes 8 elements of a row (a token's head). All lanes of a row are of
// one workgroup, which has read everything before it writes: an output may lie
// on an input.
#include "kg/attn_merge/attn_merge_num.h"

namespace kg {

typedef const KG_CONSTANT kg_attn_merge_args &args_t;

constexpr int LANES = kg_merge_lanes(HEAD_DIM);             // of a row
constexpr int ROWS = kg_merge_rows(HEAD_DIM, KG_WORKGROUP); // of a turn
constexpr int BATCH = kg_merge_batch(PARTS == PARTS_STACK); // parts in flight
static_assert(ROWS >= 1, "a row is a workgroup's");

struct row_t {
    bool exists;
    int token, head;
    bool alone; // the last part's
};

// Of all parts so far: out = sum / weights.
struct total_t {
    float top, weights, last; // last: the lse of the last part, as it is
    float sum[DIMS];
};

struct batch_t {
    float lse[BATCH];
    u32 words[BATCH][X_WORDS];
};

KG_DEV int dim_of_lane() { return (int)(thread_id() % LANES) * DIMS; }

KG_DEV row_t row_at(args_t a, int turn) {
    int local = (int)(thread_id() / LANES);
    u32 n = (group_id() * (u32)TURNS + (u32)turn) * (u32)ROWS + (u32)local;
    int token = (int)((u64)n * a.by_heads.magic >> a.by_heads.shift);
    return row_t{local < ROWS && n < (u32)a.rows, token, (int)n - token * a.heads,
                 token >= a.merged};
}

KG_DEV i64 lse_at(row_t row, i64 step) {
    return LSE == LSE_TH ? row.token * step + row.head : row.head * step + row.token;
}

// Parts from `first` on; behind the last, the last again.
KG_DEV void load_batch(batch_t &b, args_t a, row_t row, int first) {
    if (!row.exists) return;
    KG_UNROLL for (int i = 0; i < BATCH; i++) {
        int n = first + i < a.parts ? first + i : a.parts - 1;
        if constexpr (PARTS == PARTS_PAIR) n = 0;
        const KG_CONSTANT kg_merge_part &p = a.part[PARTS == PARTS_PAIR ? i : 0];
        b.lse[i] = load(p.lse + (n * a.next_lse + lse_at(row, p.lse_row)));
        load_row(b.words[i], (const u8 *)p.x + (n * a.next + row.token * p.token +
                                                row.head * p.head + dim_of_lane() * X_BYTES));
    }
}

KG_DEV float weight(float lse, float top) {
    return lse == -INFINITE ? 0.0f : exp2((lse - top) * LOG2E);
}

// What a part's lse counts as.
KG_DEV float counted(float lse, row_t row, int n, int parts) {
    if (n >= parts || (row.alone && n < parts - 1)) return -INFINITE;
    if (row.alone) return 0.0f;
    return lse == INFINITE ? -INFINITE : lse;
}

KG_DEV void add_batch(total_t &t, const batch_t &b, row_t row, int first, int parts) {
    float lse[BATCH], top = t.top;
    KG_UNROLL for (int i = 0; i < BATCH; i++) {
        lse[i] = counted(b.lse[i], row, first + i, parts);
        top = fmax(top, lse[i]);
        if (first + i == parts - 1) t.last = b.lse[i];
    }
    float keep = weight(t.top, top);
    t.weights *= keep;
    KG_UNROLL for (int d = 0; d < DIMS; d++) t.sum[d] *= keep;
    KG_UNROLL for (int i = 0; i < BATCH; i++) {
        float w = weight(lse[i], top);
        t.weights += w;
        KG_UNROLL for (int d = 0; d < DIMS; d++) t.sum[d] +=
            w == 0.0f ? 0.0f : w * element(b.words[i], d);
    }
    t.top = top;
}

KG_DEV void clear(total_t &t) {
    t.top = -INFINITE;
    t.weights = t.last = 0.0f;
    KG_UNROLL for (int d = 0; d < DIMS; d++) t.sum[d] = 0.0f;
}

KG_DEV void store_total(args_t a, row_t row, const total_t &t) {
    if (!row.exists) return;
    bool empty = t.weights == 0.0f;
    float factor = empty ? 0.0f : 1.0f / t.weights, x[DIMS];
    if constexpr (OUT_BYTES == 1) factor /= load(a.out_scale);
    KG_UNROLL for (int d = 0; d < DIMS; d++) x[d] = t.sum[d] * factor;
    store_row((u8 *)a.out +
                  (row.token * a.out_token + row.head * a.out_head + dim_of_lane() * OUT_BYTES),
              x);
    if (!a.lse || dim_of_lane()) return;
    float lse = empty ? -INFINITE : t.top + log2(t.weights) * LN2;
    store(a.lse + lse_at(row, a.lse_row), row.alone ? t.last : lse);
}

KG_DEV void run(args_t a) {
    row_t row[TURNS];
    total_t total[TURNS];
    KG_UNROLL for (int i = 0; i < TURNS; i++) {
        row[i] = row_at(a, i);
        clear(total[i]);
    }
    KG_LOOP for (int first = 0; first < a.parts; first += BATCH) {
        batch_t batch[TURNS];
        KG_UNROLL for (int i = 0; i < TURNS; i++) load_batch(batch[i], a, row[i], first);
        KG_UNROLL for (int i = 0; i < TURNS; i++)
            add_batch(total[i], batch[i], row[i], first, a.parts);
    }
    barrier();
    KG_UNROLL for (int i = 0; i < TURNS; i++) store_total(a, row[i], total[i]);
}

} // namespace kg

KG_ENTRY(kg_attn_merge_args, args, kg::OCCUPANCY) { kg::run(KG_ARGS(kg_attn_merge_args, args)); }
