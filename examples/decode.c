/* A first program: one decode step of paged attention over two sequences.
 *
 *   decode [--device NAME]     "hip:0", "cuda:0"; cpu:cdna3 without
 *
 * The value of key k is k everywhere and every query matches every key alike,
 * so each output is the mean of 0 .. len-1. */
#include <kgen/kgen.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { S = 2, HQ = 8, HKV = 2, D = 128, PAGE = 16, NB = 8, MAX_PAGES = 4 };

#define SPEC "attn:phase=decode,q=bf16,kv=bf16,d=128,g=4,page=16,layout=nhd"

typedef struct batch {
    uint16_t q[S][HQ][D], k[NB][PAGE][HKV][D], v[NB][PAGE][HKV][D], out[S][HQ][D];
    int32_t table[S][MAX_PAGES], lens[S];
} batch;

static uint16_t to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float from_bf16(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Keys are zero; pages of a sequence may lie anywhere. */
static void fill(batch *b) {
    static const int32_t table[S][MAX_PAGES] = {{5, 2, 7, 0}, {3, 0, 0, 0}};
    static const int32_t lens[S] = {33, 8};
    memset(b, 0, sizeof *b);
    memcpy(b->table, table, sizeof table);
    memcpy(b->lens, lens, sizeof lens);
    for (int s = 0; s < S; s++)
        for (int key = 0; key < lens[s]; key++)
            for (int i = 0; i < HKV * D; i++)
                b->v[table[s][key / PAGE]][key % PAGE][i / D][i % D] = to_bf16((float)key);
    for (int i = 0; i < S * HQ * D; i++) b->q[i / (HQ * D)][i / D % HQ][i % D] = to_bf16(1.0f);
}

/* Every tensor of the batch, at its place in a device copy of it. */
static kgen_attn_args arguments(batch *d) {
    kgen_attn_args a;
    memset(&a, 0, sizeof a);
    a.q = kgen_tensor_dense(d->q, KGEN_DTYPE_BF16, 3, (int64_t[]){S, HQ, D});
    a.k = kgen_tensor_dense(d->k, KGEN_DTYPE_BF16, 4, (int64_t[]){NB, PAGE, HKV, D});
    a.v = kgen_tensor_dense(d->v, KGEN_DTYPE_BF16, 4, (int64_t[]){NB, PAGE, HKV, D});
    a.k.layout = a.v.layout = KGEN_LAYOUT_NHD;
    a.out = kgen_tensor_dense(d->out, KGEN_DTYPE_BF16, 3, (int64_t[]){S, HQ, D});
    a.block_table = kgen_tensor_dense(d->table, KGEN_DTYPE_I32, 2, (int64_t[]){S, MAX_PAGES});
    a.seq_lens = kgen_tensor_dense(d->lens, KGEN_DTYPE_I32, 1, (int64_t[]){S});
    a.softmax_scale = 1.0f / sqrtf(D);
    return a;
}

static kgen_status run(kgen_context *ctx, batch *host, void **device, void **workspace,
                       kgen_error *err) {
    kgen_spec spec;
    kgen_kernel *kernel;
    KGEN_TRY(kgen_spec_parse(&spec, SPEC, err));
    KGEN_TRY(kgen_prepare(ctx, &spec, 1, &kernel, err)); /* once: may compile */

    KGEN_TRY(kgen_memory_alloc(ctx, device, sizeof *host, err));
    KGEN_TRY(kgen_memory_write(ctx, *device, host, sizeof *host, err));
    kgen_attn_args attn = arguments(*device);
    kgen_args args = {.family = KGEN_FAMILY_ATTN, .attn = &attn};
    KGEN_TRY(kgen_workspace_size(kernel, &args, &args.workspace_bytes, err));
    KGEN_TRY(kgen_memory_alloc(ctx, workspace, args.workspace_bytes, err));
    args.workspace = *workspace;
    KGEN_TRY(kgen_workspace_init(ctx, args.workspace, args.workspace_bytes, NULL, err));

    KGEN_TRY(kgen_launch(kernel, &args, NULL, err)); /* every step: only this */
    KGEN_TRY(kgen_stream_sync(ctx, NULL, err));
    return kgen_memory_read(ctx, host, *device, sizeof *host, err);
}

static int report(const batch *b) {
    int wrong = 0;
    for (int s = 0; s < S; s++) {
        float want = (float)(b->lens[s] - 1) / 2;
        for (int i = 0; i < HQ * D; i++) wrong += from_bf16(b->out[s][i / D][i % D]) != want;
        printf("sequence %d: %d keys, output %g, expected %g\n", s, b->lens[s],
               from_bf16(b->out[s][0][0]), want);
    }
    return wrong;
}

int main(int argc, char **argv) {
    static batch host;
    kgen_error err = {KGEN_OK, ""};
    kgen_open_options options = {
        .size = sizeof options, .device = "cpu:cdna3", .mode = KGEN_MODE_AUTO};
    kgen_context *ctx = NULL;
    void *device = NULL, *workspace = NULL;

    if (argc == 3 && !strcmp(argv[1], "--device")) {
        options.device = argv[2];
    } else if (argc > 1) {
        fprintf(stderr, "usage: decode [--device NAME]\n");
        return kgen_status_exit_code(KGEN_E_ARG);
    }
    fill(&host);
    kgen_status status = kgen_open(&ctx, &options, &err);
    if (status == KGEN_OK) status = run(ctx, &host, &device, &workspace, &err);
    int wrong = status == KGEN_OK ? report(&host) : 0;
    if (status != KGEN_OK) fprintf(stderr, "decode: %s\n", err.text);
    if (ctx) {
        kgen_memory_free(ctx, workspace);
        kgen_memory_free(ctx, device);
        kgen_close(ctx);
    }
    return wrong ? kgen_status_exit_code(KGEN_E_MISMATCH) : kgen_status_exit_code(status);
}
