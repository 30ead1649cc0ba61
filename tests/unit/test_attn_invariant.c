/* Attention and latent attention with `invariant`: the rows of a sequence have the same bits
 * in a batch, alone, and with its tokens one at a time. Without the key they have others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check_family.h"
#include "did.h"
#include "seed.h"

static kgen_context *ctx;
static uint64_t seed;

static int open_device(void **state) {
    kgen_open_options options = {.size = sizeof options, .device = "cpu:cdna3"};
    (void)state;
    seed = test_seed();
    if (kgen_open(&ctx, &options, &did) == KGEN_OK) return 0;
    print_message("skipped: %s\n", did.text);
    return -1;
}

static int close_device(void **state) {
    (void)state;
    kgen_close(ctx);
    return 0;
}

/* What both families have. */
typedef struct tensors {
    kgen_tensor *q, *out, *table, *lens, *cu, *lse;
} tensors;

#define TENSORS_OF(a) \
    {&(a)->q, &(a)->out, &(a)->block_table, &(a)->seq_lens, &(a)->cu_seqlens_q, &(a)->lse}

static tensors tensors_of(const kgen_args *args, kgen_args_room *room) {
    if (args->family == KGEN_FAMILY_MLA) return (tensors)TENSORS_OF(&room->mla);
    return (tensors)TENSORS_OF(&room->attn);
}

/* A batch, and what a launch of all of it gave. */
typedef struct batch {
    kgen__data data;
    kgen_kernel *kernel;
    kgen_args args;
    kgen_args_room room;
    unsigned char *out;
    float *lse;
    size_t row; /* bytes of a token in out */
} batch;

static void launch(batch *b) {
    DO(kgen_launch(b->kernel, &b->args, NULL, &did));
    DO(kgen_stream_sync(ctx, NULL, &did));
}

static void make(batch *b, const char *line) {
    kgen__case c;
    kgen_spec spec;
    size_t bytes;
    DO(kgen__case_parse(&c, line, &did));
    kgen__case_draw(&c, seed);
    DO(kgen_prepare(ctx, &c.spec, 1, &b->kernel, &did));
    DO(kgen_spec_resolve(&spec, &c.spec, kgen_context_target(ctx), &did));
    DO(kgen__data_make(&b->data, &c, &spec, &did));
    DO(kgen__data_fill(&b->data, seed, &did));
    b->args = b->data.args;
    if (b->args.family == KGEN_FAMILY_MLA) {
        b->room.mla = *b->data.args.mla;
        b->args.mla = &b->room.mla;
    } else {
        b->room.attn = *b->data.args.attn;
        b->args.attn = &b->room.attn;
    }
    DO(kgen_workspace_size(b->kernel, &b->args, &bytes, &did));
    DO(kgen_memory_alloc(ctx, &b->args.workspace, bytes, &did));
    b->args.workspace_bytes = bytes;
    DO(kgen_workspace_init(ctx, b->args.workspace, bytes, NULL, &did));
    tensors t = tensors_of(&b->args, &b->room);
    b->row = (size_t)(t.out->stride[0] * kgen_dtype_size(t.out->dtype));
    launch(b);
    b->out = malloc(kgen__tensor_bytes(t.out));
    b->lse = malloc(kgen__tensor_bytes(t.lse));
    assert_true(b->out && b->lse);
    memcpy(b->out, t.out->data, kgen__tensor_bytes(t.out));
    memcpy(b->lse, t.lse->data, kgen__tensor_bytes(t.lse));
}

static void drop(batch *b) {
    kgen_memory_free(ctx, b->args.workspace);
    kgen__data_free(&b->data);
    free(b->out);
    free(b->lse);
}

/* Tokens from .. end - 1 of a sequence in a launch of their own, with the keys that they
 * see: how many of these rows have other bits than in the batch. */
static int others(batch *b, int64_t seq, int64_t from, int64_t end) {
    tensors a = tensors_of(&b->args, &b->room);
    kgen_args_room whole = b->room;
    const int32_t *cu = a.cu->data, *lens = a.lens->data;
    int32_t ends[] = {cu[seq] + (int32_t)from, cu[seq] + (int32_t)end};
    int32_t keys = lens[seq] - (cu[seq + 1] - ends[1]);
    int differ = 0;
    a.cu->data = ends;
    a.cu->shape[0] = 2;
    a.lens->data = &keys;
    a.lens->shape[0] = a.table->shape[0] = 1;
    a.table->data = (int32_t *)a.table->data + seq * a.table->stride[0];
    memset(a.out->data, 0x7f, kgen__tensor_bytes(a.out));
    launch(b);
    for (int64_t token = ends[0]; token < ends[1]; token++) {
        size_t at = (size_t)token * b->row;
        int same = !memcmp((unsigned char *)a.out->data + at, b->out + at, b->row);
        for (int64_t h = 0; h < a.q->shape[1]; h++) {
            size_t place = (size_t)(h * a.lse->stride[0] + token);
            same &= !memcmp((float *)a.lse->data + place, b->lse + place, sizeof(float));
        }
        differ += !same;
    }
    b->room = whole;
    return differ;
}

static int all_others(const char *line) {
    batch b;
    int differ = 0;
    make(&b, line);
    const int32_t *cu = tensors_of(&b.args, &b.room).cu->data;
    for (int64_t s = 0; s < b.data.shape.seqs; s++) {
        int64_t count = cu[s + 1] - cu[s];
        differ += others(&b, s, 0, count);
        for (int64_t i = 0; i < count; i += count > 8 ? 7 : 1) differ += others(&b, s, i, i + 1);
        differ += others(&b, s, count / 2, count);
    }
    drop(&b);
    return differ;
}

/* Scores so far apart that maxima move often; the window of some tokens begins a block later
 * than that of those beside them. */
#define BATCH "lens=700,40,333,64 qlens=4,4,2,3 hkv=2 scale=1 poison=0"
#define PARTS "lens=1100,40,513,64 qlens=4,4,2,3 scale=1 poison=0"
#define PROMPTS "lens=300,40,90 qlens=70,40,1 hkv=2 scale=1 poison=0"

/* The window of BATCH moves over a part's begin with the tokens. */
static const char *const steady[] = {
    "attn:phase=verify,t=4,d=64,g=4,page=16,lse=1,o=f32,sinks=1,invariant=512 | hkv=2 " PARTS,
    "attn:phase=verify,t=4,d=64,g=8,window=590,lse=1,o=f32,invariant=512 | " PARTS,
    "attn:phase=verify,t=4,d=64,g=8,window=187,lse=1,o=f32,invariant=1 | " BATCH,
    "attn:phase=extend,d=64,g=3,page=16,lse=1,o=f32,invariant=1 | " PROMPTS,
    "mla:phase=verify,t=4,l=48,r=16,h=5,page=16,lse=1,invariant=512 | " PARTS,
    "mla:phase=verify,t=4,l=32,r=16,h=20,page=16,lse=1,mt=4,window=590,invariant=512 | " PARTS,
};

static void bits_stay(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof steady / sizeof steady[0]; i++)
        if (all_others(steady[i])) fail_msg("%s: other bits", steady[i]);
}

static void without_the_key_they_do_not(void **state) {
    (void)state;
    assert_true(all_others("attn:phase=verify,t=4,d=64,g=4,page=16,lse=1 | " BATCH) > 0);
    assert_true(all_others("mla:phase=verify,t=4,l=48,r=16,h=5,page=16,lse=1 | " PARTS) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_stay),
        cmocka_unit_test(without_the_key_they_do_not),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
