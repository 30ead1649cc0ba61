/* What the data of both kv families have in common. */
#include <stdlib.h>

#include "check_kv.h"

void kgen__kv_pad_rows(kgen_tensor *t, const kgen__kv_case *c, int32_t align) {
    int64_t size = kgen_dtype_size(t->dtype), unit = align > size ? align / size : 1;
    kgen__tensor_pad(t, (int64_t[]){c->rowpad * unit, c->headpad * unit, 0});
}

void kgen__kv_scale(kgen_tensor *t, const kgen__cache_plan *p, int32_t descale, int32_t shape,
                    int64_t seqs) {
    int token = descale == KGEN_DESCALE_TOKEN || descale == KGEN_DESCALE_ROW;
    if (descale == KGEN_DESCALE_NONE) return;
    if (shape == KGEN__SCALE_AUTO || (shape >= KGEN__SCALE_TOKEN) != token)
        shape = token ? KGEN__SCALE_TOKEN : KGEN__SCALE_ONE;
    kgen__descale_shape(t, p, (kgen__scale_shape)shape, seqs);
}

kgen_status kgen__kv_shuffled(int64_t **order, kgen__rng *rng, int64_t count, kgen_error *err) {
    int64_t *all = malloc((size_t)(count + 1) * sizeof *all);
    if (!all) return kgen_fail(err, KGEN_E_NOMEM, "%lld pages: out of memory", (long long)count);
    for (int64_t i = 0; i < count; i++) all[i] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = kgen__rng_range(rng, 0, i), kept = all[i];
        all[i] = all[j];
        all[j] = kept;
    }
    *order = all;
    return KGEN_OK;
}
