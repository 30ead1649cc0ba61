/* What the launches of kv_write and kv_gather pack alike. */
#ifndef KGEN_RUNTIME_KV_PACK_H
#define KGEN_RUNTIME_KV_PACK_H

#include "gen/kv.h"
#include "templates/kg/kv/kv_packed.h"
#include "kv_layout.h"
#include "launch.h"

struct kg_divisor kgen__divisor(int64_t by);

void kgen__pack_side(struct kg_kv_side *side, const kgen__kv *kv, int is_v, const kgen_tensor *rows,
                     const kgen_tensor *cache);
void kgen__pack_scale(struct kg_kv_side *side, const kgen_tensor *scale, const long long stride[3]);

kgen__kv_counts kgen__kv_counts_of(const kgen__kv_shape *shape, const kgen_target *target);

/* Waves that share a block of x tokens of `heads` heads (packed V). */
int64_t kgen__kv_count_slices(const kgen__kv_counts *counts, int64_t heads);
/* Workgroups of K or V, so that a lane's number stays below 2^31. tokens: that a
 * wave takes of its slice of heads (packed V); 0: lanes take pieces of rows. */
kgen_status kgen__count_groups(int64_t *groups, const kgen__kv_counts *counts, int is_v,
                               int64_t tokens, int64_t rows, int64_t heads, kgen_error *err);

#endif
