/* Rows of a latent cache whose latent is quantised by blocks: a pool as bytes, and the
 * numbers that its rows are read as. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_mla.h"

enum { BLOCK = 128 };

static int64_t scales_bytes(const kgen_mla_spec *s) { return (s->latent / BLOCK + 3) / 4 * 16; }

kgen_status kgen__mla_pool(kgen_tensor *out, const kgen_mla_spec *s, const kgen_tensor *cache,
                           kgen_error *err) {
    const int64_t shape[] = {cache->shape[0], cache->shape[1], s->latent + s->rope};
    *out = kgen_tensor_dense(NULL, (kgen_dtype)s->kv, 3, shape);
    out->data = malloc(kgen__tensor_bytes(out) + 1);
    return out->data ? KGEN_OK : kgen_fail(err, KGEN_E_NOMEM, "case: out of memory");
}

/* NaN where a number is not finite: such is poison. */
static float amax_of(const float x[BLOCK]) {
    float most = 0;
    for (int i = 0; i < BLOCK; i++) {
        if (!isfinite(x[i])) return NAN;
        most = fmaxf(most, fabsf(x[i]));
    }
    return most;
}

/* Scales of neighbours differ, so that none stands for another. */
static float write_block(unsigned char *codes, kgen_dtype dtype, const float x[BLOCK],
                         kgen__rng *rng) {
    static const float factors[] = {0.25f, 0.5f, 1};
    float most = amax_of(x), unit = most / (float)kgen__number_max(dtype);
    for (int i = 0; i < BLOCK; i++) {
        double value = unit > 0 ? (double)(x[i] / unit) : 0;
        codes[i] = (unsigned char)(isfinite(most) ? kgen__number_encode(dtype, value)
                                                  : kgen__number_poison(dtype, 0));
    }
    return factors[kgen__rng_range(rng, 0, 2)] * unit;
}

static void write_row(unsigned char *row, const kgen_mla_spec *s, const kgen_tensor *pool,
                      int64_t first, kgen__rng *rng) {
    for (int32_t at = 0; at < s->latent; at += BLOCK) {
        float x[BLOCK];
        for (int i = 0; i < BLOCK; i++)
            x[i] = (float)kgen__number_load(pool->dtype, pool->data, first + at + i);
        float scale = write_block(row + at, (kgen_dtype)s->rows, x, rng);
        memcpy(row + s->latent + at / BLOCK * 4, &scale, sizeof scale);
    }
    memcpy(row + s->latent + scales_bytes(s), (const char *)pool->data + 2 * (first + s->latent),
           2 * (size_t)s->rope);
}

static void read_row(const kgen_tensor *pool, int64_t first, const kgen_mla_spec *s,
                     const unsigned char *row) {
    for (int32_t i = 0; i < s->latent; i++) {
        float scale;
        memcpy(&scale, row + s->latent + i / BLOCK * 4, sizeof scale);
        kgen__number_store(pool->dtype, pool->data, first + i,
                           (double)(kgen__number_decode((kgen_dtype)s->rows, row[i]) * scale));
    }
    memcpy((char *)pool->data + 2 * (first + s->latent), row + s->latent + scales_bytes(s),
           2 * (size_t)s->rope);
}

static unsigned char *row_at(const kgen_tensor *cache, int64_t page, int64_t slot) {
    return (unsigned char *)cache->data + page * cache->stride[0] + slot * cache->stride[1];
}

void kgen__mla_rows_write(kgen_tensor *cache, const kgen_mla_spec *s, const kgen_tensor *pool,
                          uint64_t seed) {
    kgen__rng rng;
    kgen__rng_seed(&rng, seed, MLA_SLOTS + MLA_CACHE);
    memset(cache->data, 0xff, kgen__tensor_bytes(cache));
    for (int64_t page = 0; page < cache->shape[0]; page++)
        for (int64_t slot = 0; slot < cache->shape[1]; slot++)
            write_row(row_at(cache, page, slot), s, pool,
                      page * pool->stride[0] + slot * pool->stride[1], &rng);
}

void kgen__mla_rows_read(const kgen_tensor *pool, const kgen_mla_spec *s,
                         const kgen_tensor *cache) {
    for (int64_t page = 0; page < cache->shape[0]; page++)
        for (int64_t slot = 0; slot < cache->shape[1]; slot++)
            read_row(pool, page * pool->stride[0] + slot * pool->stride[1], s,
                     row_at(cache, page, slot));
}
