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
    if (descale == KGEN_DESCALE_NONE || descale == KGEN_DESCALE_BLOCK) return;
    if (shape == KGEN__SCALE_AUTO || (shape >= KGEN__SCALE_TOKEN) != token)
        shape = token ? KGEN__SCALE_TOKEN : KGEN__SCALE_ONE;
    kgen__descale_shape(t, p, (kgen__scale_shape)shape, seqs);
}

void kgen__kv_blocks(kgen__data *data, const kgen__cache_plan *p, int k, int v, int scale) {
    enum { BLOCK = 128 };
    kgen_tensor *tk = kgen__slot_tensor(&data->args, k), *tv = kgen__slot_tensor(&data->args, v);
    kgen_tensor *ts = kgen__slot_tensor(&data->args, scale);
    int64_t blocks = p->dv / BLOCK, scales = (blocks + 3) / 4 * 16;
    int64_t row = p->dv + scales + 2 * p->d, token = row * p->hkv + p->pad * 16;
    const int64_t shape[] = {p->pages, p->page, p->hkv, blocks};
    *ts = kgen_tensor_dense(NULL, ts->dtype, 4, shape);
    if (!p->packed) return;
    int page = tk->layout == KGEN_LAYOUT_NHD ? 1 : 2;
    kgen_tensor *const all[] = {tk, tv, ts};
    for (int i = 0; i < 3; i++) {
        int64_t size = kgen_dtype_size(all[i]->dtype);
        int slot = i < 2 ? page : 1;
        all[i]->stride[0] = token * p->page / size;
        all[i]->stride[slot] = token / size;
        all[i]->stride[3 - slot] = row / size;
    }
    data->slot[k].offset = (data->slot[k].offset + 3) / 4 * 4; /* scales are floats */
    data->slot[v].view_of = data->slot[scale].view_of = k;
    data->slot[v].offset = data->slot[k].offset;
    data->slot[scale].offset = data->slot[k].offset + (size_t)p->dv;
    data->slot[k].offset += (size_t)(p->dv + scales);
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
