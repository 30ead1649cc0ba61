/* What the tests of scatter share: kernels on a cpu device, whose memory is the
 * host's, and tensors over arrays. */
#ifndef KGEN_TESTS_UNIT_SCATTER_RIG_H
#define KGEN_TESTS_UNIT_SCATTER_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "check/scatter_all.h"
#include "did.h"

#define SENTINEL 0x7eadbeef

static kgen_context *ctx;
static kgen_stream stream;

static int open_device(void **state) {
    kgen_open_options options = {.size = sizeof options, .device = "cpu:cdna3"};
    (void)state;
    if (kgen_open(&ctx, &options, &did) != KGEN_OK) {
        print_message("skipped: %s\n", did.text);
        return -1;
    }
    return kgen_stream_create(ctx, &stream, &did) != KGEN_OK;
}

static int close_device(void **state) {
    (void)state;
    if (ctx) kgen_stream_destroy(ctx, stream);
    kgen_close(ctx);
    return 0;
}

static kgen_kernel *kernel_of(const char *line) {
    kgen_spec spec;
    kgen_kernel *kernel = NULL;
    DO(kgen_spec_parse(&spec, line, &did));
    DO(kgen_prepare(ctx, &spec, 1, &kernel, &did));
    return kernel;
}

static inline void launch(kgen_kernel *kernel, const kgen__scatter_all *a) {
    kgen_scatter_args scatter;
    kgen_args args = {.family = KGEN_FAMILY_SCATTER, .scatter = &scatter};
    kgen__scatter_pack(&scatter, &kgen_kernel_spec(kernel)->scatter, a);
    DO(kgen_launch(kernel, &args, stream, &did));
    DO(kgen_stream_sync(ctx, stream, &did));
}

static inline void run(const char *line, const kgen__scatter_all *a) { launch(kernel_of(line), a); }

/* ---- tensors over arrays -------------------------------------------- */

static inline kgen_tensor vector_of(const void *p, kgen_dtype dtype, int64_t count) {
    return kgen_tensor_dense((void *)(uintptr_t)p, dtype, 1, &count);
}

static inline kgen_tensor rows_of(const void *p, kgen_dtype dtype, int64_t rows, int64_t columns,
                                  int64_t stride) {
    kgen_tensor t =
        kgen_tensor_dense((void *)(uintptr_t)p, dtype, 2, (const int64_t[]){rows, columns});
    t.stride[0] = stride;
    return t;
}

#define V32(p, count) vector_of(p, KGEN_DTYPE_I32, count)
#define V64(p, count) vector_of(p, KGEN_DTYPE_I64, count)
#define M32(p, rows, columns) rows_of(p, KGEN_DTYPE_I32, rows, columns, columns)
#define M64(p, rows, columns) rows_of(p, KGEN_DTYPE_I64, rows, columns, columns)

static inline void fill32(int32_t *p, int64_t count, int32_t value) {
    for (int64_t i = 0; i < count; i++) p[i] = value;
}

static inline void fill64(int64_t *p, int64_t count, int64_t value) {
    for (int64_t i = 0; i < count; i++) p[i] = value;
}

#define SAME(got, ...)                                                                    \
    do {                                                                                  \
        const __typeof__((got)[0]) want_[] = {__VA_ARGS__};                               \
        for (size_t i_ = 0; i_ < sizeof want_ / sizeof want_[0]; i_++)                    \
            if ((got)[i_] != want_[i_])                                                   \
                fail_msg("%s[%zu] is %lld, must be %lld", #got, i_, (long long)(got)[i_], \
                         (long long)want_[i_]);                                           \
    } while (0)

#endif
