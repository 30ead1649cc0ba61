/* The cases of scatter, and its row in the table of families. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_scatter.h"

#define AT(field) KGEN__CASE_AT(scatter, field)
#define INTEGER(name, low, high, initial) \
    KGEN__CASE_INTEGER(scatter, name, name, low, high, initial)
#define SPANS(name, high) KGEN__CASE_SPANS(scatter, name, name, high)

static const kgen__case_key keys[] = {
    KGEN__CASE_SEQS(0, -1),
    SPANS(lens, 1 << 20),
    SPANS(qlens, 4096),
    INTEGER(pads, 0, KGEN__CASE_SEQS_MAX, 0),
    INTEGER(tokens, 0, 4096, 4),
    INTEGER(steps, 1, 64, 3),
    INTEGER(topk, 1, 16, 2),
    INTEGER(cols, 0, 65536, 1),
    INTEGER(cut, 0, 65536, 0),
    INTEGER(rowpad, 0, 65536, 0),
    INTEGER(extra, 0, 65536, 1),
    INTEGER(off, 0, 1, 0),
    INTEGER(bad, 0, 16, 0),
    INTEGER(live, 0, 1, 1),
    INTEGER(again, 0, 8, 0),
    INTEGER(vocab, 1, 1 << 20, 50),
    KGEN__CASE_SEED,
};

static int implied(kgen__span *out, const kgen__case *c, const kgen__case_key *key) {
    int32_t term = key->offset == AT(qlens) ? c->scatter.tokens : 0;
    *out = (kgen__span){term, term};
    return key->offset == AT(qlens);
}

static kgen_status settle(const kgen__case *drawn, kgen_error *err) {
    const kgen_scatter_spec *s = &drawn->spec.scatter;
    const kgen__scatter_case *c = &drawn->scatter;
    int may_be_0 = s->op == KGEN_OP_PAGE_TABLE_REQUESTS || s->op == KGEN_OP_SPEC_PREPARE;
    int tree = s->op >= KGEN_OP_TREE_BUILD && s->op <= KGEN_OP_TREE_VERIFY;
    int32_t bits = 8 * kgen_dtype_size((kgen_dtype)s->word);
    int32_t high = s->mask == KGEN_MASK_WORDS && s->op != KGEN_OP_TREE_VERIFY ? bits : 64;
    if (s->op == KGEN_OP_TREE_MASK) high = bits;
    if (c->tokens < !may_be_0)
        return kgen_fail(err, KGEN_E_ARG, "tokens=%d: at least %d", c->tokens, !may_be_0);
    if (tree && c->tokens > high)
        return kgen_fail(err, KGEN_E_ARG, "tokens=%d: a tree has at most %d", c->tokens, high);
    if (c->pads > 0 && !c->live)
        return kgen_fail(err, KGEN_E_ARG, "pads=%d: live=0 has no padding", c->pads);
    return KGEN_OK;
}

static void alone(char *out, size_t size, const kgen_spec *spec, int heads) {
    (void)spec, (void)heads;
    snprintf(out, size, "seqs=5 lens=rand:0..70 qlens=rand:0..5 pads=1 cols=3 rowpad=2 again=4");
}

/* What the reference makes of a copy of what a launch finds. */
static kgen_status answer_of(kgen__answer *answer, const kgen__data *data, kgen_error *err) {
    kgen_args args;
    kgen_args_room room;
    kgen_args_copy(&args, &room, &data->args);
    for (int i = 0; i < kgen__slot_count(&args); i++) {
        const kgen__slot *slot = &data->slot[i];
        kgen_tensor *t = kgen__slot_tensor(&args, i);
        kgen__image *image = &answer->image[i];
        if (!slot->bytes || slot->role == KGEN_USE_IN) continue;
        image->bytes = malloc(slot->size);
        image->count = (int64_t)(kgen__tensor_bytes(t) / (size_t)kgen_dtype_size(t->dtype));
        image->tolerance = malloc((size_t)(image->count + 1) * sizeof(float));
        if (!image->bytes || !image->tolerance)
            return kgen_fail(err, KGEN_E_NOMEM, "%zu bytes: out of memory", slot->size);
        for (int64_t at = 0; at < image->count; at++) image->tolerance[at] = -1; /* exact */
        if (slot->before)
            memcpy(image->bytes, slot->before, slot->size);
        else
            memset(image->bytes, 0xff, slot->size);
        image->offset = slot->offset;
        t->data = image->bytes + slot->offset;
    }
    kgen__scatter_reference(&data->spec, args.scatter, data->shape.seqs);
    return KGEN_OK;
}

const kgen__check_family kgen__check_family_scatter = {
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
    .implied = implied,
    .settle = settle,
    .random = kgen__scatter_random,
    .alone = alone,
    .shape = kgen__scatter_shape,
    .fill = kgen__scatter_fill,
    .refill = kgen__scatter_refill,
    .answer = answer_of,
    .rows = kgen__scatter_rows,
};
