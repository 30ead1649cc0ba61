// Parts of contexts: chunks of a prefill, what a window leaves.
#pragma once
#include "kg/scatter/scatter_num.h"

namespace kg {

struct part_t {
    i64 start, count; // tokens
};

// Parts of all rows, and the prefix sums of their lengths; padded rows have none.
template <class F>
KG_DEV void write_parts(args_t a, void *starts, void *lens, void *sums, i64 *lds, F part) {
    int live = live_rows(a);
    i64 sum = 0;
    for (int first = 0; first < a.rows; first += THREADS) {
        int n = first + (int)thread_id();
        part_t p = {0, 0};
        if (n < live) p = part(n);
        sums_t s = sum_group(p.count, lds);
        if (n < a.rows) {
            store_int<OUT_I64>(starts, n, p.start);
            store_int<OUT_I64>(lens, n, p.count);
            store_int<OUT_I64>(sums, n, sum_of(sum, s.before));
        }
        sum = sum_of(sum, s.all);
    }
    if (thread_id() == 0) store_int<OUT_I64>(sums, a.rows, sum);
}

KG_DEV void *step_of(void *p, i64 i) { return (void *)element<OUT_I64>(p, i); }

// A workgroup has a chunk of all rows.
KG_DEV void run_chunk(args_t a, i64 *lds) {
    i64 step = group_id(), start = step * a.chunk, all = a.steps * a.chunk;
    write_parts(a, step_of(a.step_starts, step * a.step_starts_step),
                step_of(a.step_lens, step * a.step_lens_step),
                step_of(a.kv_indptr, step * a.kv_indptr_step), lds, [&](int n) {
                    i64 length = length_of(a.lens, n);
                    if (step == 0 && length > all) flag(a, BAD_CAPACITY);
                    return part_t{start, within(length - start, 0, a.chunk)};
                });
}

KG_DEV void run_window(args_t a, i64 *lds) {
    write_parts(a, a.starts_out, a.seq_lens, a.kv_indptr, lds, [&](int n) {
        i64 length = length_of(a.lens, n), before = length - length_of(a.q_lens, n);
        i64 start = before > a.window ? before - a.window : 0;
        return part_t{start, length - start};
    });
}

} // namespace kg
