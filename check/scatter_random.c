/* Random cases of scatter: an op, what it reads of the spec's keys at random,
 * and kgen_spec_validate to throw out what contradicts itself. */
#include <string.h>

#include "check_scatter.h"

#define CHOICE(field, often, ...) KGEN__CHOICE(scatter.field, often, __VA_ARGS__)

static const kgen__choice choices[] = {
    CHOICE(page, 5, 1, 1, 2, 4, 16, 48, 64),
    CHOICE(swa, 3, 0, 1),
    CHOICE(pick, 2, 0, 1),
    CHOICE(tail, 3, 0, 1, 2),
    CHOICE(starts, 3, 0, 1),
    CHOICE(unaligned, 3, 0, 1),
    CHOICE(ragged, 3, 0, 1),
    CHOICE(accept, 3, 0, 1),
    CHOICE(seq, 1, 1, 0),
    CHOICE(qo, 1, 1, 0),
    CHOICE(kv, 1, 1, 0),
    CHOICE(pages, 1, 1, 0),
    CHOICE(locs, 1, 1, 0),
    CHOICE(pos, 1, 1, 0),
    CHOICE(delta, 3, 0, 1),
    CHOICE(by_request, 4, 0, 1),
    CHOICE(sliced, 4, 0, 1),
    CHOICE(form, 6, 0, 1, 2, 3),
    CHOICE(sampling, 6, 0, 1),
    CHOICE(race, 5, 0, 1),
    CHOICE(mask, 6, 0, 1, 2),
    CHOICE(word, 4, KGEN_DTYPE_I32, KGEN_DTYPE_I64, KGEN_DTYPE_U8, KGEN_DTYPE_U16),
    CHOICE(unit, 4, 16, 1, 2, 4, 8),
    CHOICE(pack, 2, 1, 2, 8, 16),
    CHOICE(len, 2, 0, 1),
    CHOICE(req, 2, 1, 0),
    CHOICE(slot, 2, 0, 1),
    CHOICE(map, 2, 1, 0),
    CHOICE(table, 2, 0, 1),
    CHOICE(out, 2, 0, 1),
    CHOICE(loc, 2, 1, 0),
    CHOICE(accept_type, 2, 0, 1),
    CHOICE(token, 2, 1, 0),
    CHOICE(target, 3, 1, 0),
    CHOICE(link, 2, 1, 0),
};
enum { CHOICES = sizeof choices / sizeof choices[0] };

/* Keys one at a time: all together are valid for no op. */
static void random_keys(kgen_spec *spec, kgen__rng *rng, const kgen_target *target) {
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < CHOICES; i++) {
            kgen_spec next = *spec;
            if (!kgen__chance(rng, choices[i].often)) continue;
            *(int32_t *)((char *)&next + choices[i].offset) =
                kgen__pick(rng, choices[i].values, (size_t)choices[i].count);
            if (kgen_spec_validate(&next, target, NULL) == KGEN_OK) *spec = next;
        }
}

static int32_t length_of(kgen__rng *rng, int64_t budget) {
    int32_t most = (int32_t)(budget < 4000 ? budget : 4000);
    if (kgen__chance(rng, 4)) return (int32_t)kgen__rng_range(rng, 0, 20);
    return (int32_t)kgen__rng_range(rng, 0, kgen__chance(rng, 6) ? 100 : most);
}

static void random_rows(kgen__case *c, kgen__rng *rng, int64_t budget) {
    kgen__scatter_case *k = &c->scatter;
    c->seqs = KGEN__PICK(rng, 0, 1, 2, 3, 5, 8, 20);
    for (int32_t n = 0; n < c->seqs; n++) {
        int32_t length = length_of(rng, budget), fresh = KGEN__PICK(rng, 0, 1, 2, 4, 9);
        k->lens[n] = (kgen__span){length, length};
        k->qlens[n] = (kgen__span){fresh, fresh};
    }
    k->live = kgen__chance(rng, 6);
    k->pads = k->live && c->seqs ? (int32_t)kgen__rng_range(rng, 0, c->seqs) / 2 : 0;
}

static void random_numbers(kgen__case *c, kgen__rng *rng) {
    kgen__scatter_case *k = &c->scatter;
    const kgen_scatter_spec *s = &c->spec.scatter;
    int32_t bits = 8 * kgen_dtype_size((kgen_dtype)s->word);
    k->tokens = KGEN__PICK(rng, 1, 2, 4, 4, 6, 8, 16);
    if (s->op >= KGEN_OP_TREE_BUILD && s->op <= KGEN_OP_TREE_VERIFY && k->tokens > bits)
        k->tokens = bits;
    k->steps = KGEN__PICK(rng, 1, 2, 3, 5);
    k->topk = KGEN__PICK(rng, 1, 2, 2, 4);
    k->cols = KGEN__PICK(rng, 0, 1, 3, 1100);
    k->cut = KGEN__PICK(rng, 0, 0, 0, 2, 9);
    k->rowpad = KGEN__PICK(rng, 0, 0, 1, 4);
    k->extra = KGEN__PICK(rng, 0, 1, 3);
    k->off = KGEN__PICK(rng, 0, 0, 0, 1);
    k->bad = KGEN__PICK(rng, 0, 0, 0, 1, 4);
    k->again = KGEN__PICK(rng, 0, 4, 6, 8);
    k->vocab = KGEN__PICK(rng, 5, 50, 600, 1500);
}

kgen_status kgen__scatter_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                                 int64_t budget, kgen_error *err) {
    kgen__case c;
    memset(&c, 0, sizeof c);
    KGEN_TRY(kgen_spec_parse(&c.spec, "scatter:op=tree_mask,mask=qlen", err));
    c.spec.scatter.op = (int32_t)kgen__rng_range(rng, KGEN_OP_PAGE_TABLE_RAGGED, KGEN_OP_REJECT);
    if (kgen__chance(rng, 2)) c.spec.scatter.op = KGEN_OP_SPEC_PREPARE;
    if (c.spec.scatter.op != KGEN_OP_TREE_MASK) c.spec.scatter.mask = KGEN_MASK_WORDS;
    random_keys(&c.spec, rng, target);
    KGEN_TRY(kgen_spec_validate(&c.spec, target, err));
    random_rows(&c, rng, budget > 0 ? budget : 1500);
    random_numbers(&c, rng);
    *out = c;
    return KGEN_OK;
}
