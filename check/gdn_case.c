/* The cases of gdn, and its row in the table of families. */
#include <stdio.h>

#include "check_gdn.h"

#define AT(field) KGEN__CASE_AT(gdn, field)
#define INTEGER(name, low, high, initial) KGEN__CASE_INTEGER(gdn, name, name, low, high, initial)
#define DECIMAL(name, initial) KGEN__CASE_DECIMAL(gdn, name, name, initial)
#define SPANS(key, name, high) KGEN__CASE_SPANS(gdn, key, name, high)

static const kgen__case_key keys[] = {
    KGEN__CASE_SEQS(0, -1),
    SPANS(lens, lens, 16),
    SPANS(acc, accepted, KGEN__CASE_LENGTH_MAX),
    SPANS(ring, ring, 16),
    INTEGER(pads, 0, KGEN__CASE_SEQS_MAX, 0),
    INTEGER(wpads, 0, KGEN__CASE_SEQS_MAX, 0),
    INTEGER(astray, 0, 1, 0),
    INTEGER(tail, 0, 4096, 0),
    INTEGER(extra, 0, 65536, 0),
    INTEGER(slotpad, 0, 65536, 0),
    INTEGER(rowpad, 0, 65536, 0),
    INTEGER(outpad, 0, 65536, 0),
    INTEGER(headpad, 0, 65536, 0),
    INTEGER(idxpad, 0, 65536, 0),
    INTEGER(idxstep, 1, 64, 1),
    INTEGER(cols, 0, 64, 0),
    INTEGER(scols, 0, 64, 0),
    INTEGER(steps, 0, 64, 0),
    INTEGER(rows, 0, 64, 0),
    INTEGER(off, 0, 1, 0),
    INTEGER(wide, 0, 1, 0),
    INTEGER(lines, 0, 1, 0),
    INTEGER(windows, 0, 1, 1),
    INTEGER(copies, 0, 1, 1),
    INTEGER(init, 0, 1, 0),
    INTEGER(same, 0, 1, 0),
    INTEGER(scalet, 0, 1, 0),
    INTEGER(extremes, 0, 1, 1),
    INTEGER(poison, 0, 1, 1),
    DECIMAL(xstd, 0.7),
    DECIMAL(sstd, 0.5),
    DECIMAL(vmax, 300),
    KGEN__CASE_SEED,
};

static int implied(kgen__span *out, const kgen__case *c, const kgen__case_key *key) {
    int32_t term = key->offset == AT(lens) ? c->spec.gdn.tokens : key->offset == AT(accepted);
    *out = (kgen__span){term, term};
    return 1;
}

static kgen_status settle(const kgen__case *drawn, kgen_error *err) {
    const kgen_gdn_spec *s = &drawn->spec.gdn;
    const kgen__gdn_case *c = &drawn->gdn;
    for (int32_t n = 0; n < drawn->seqs; n++) {
        int32_t least = s->varlen ? 0 : s->tokens;
        if (c->lens[n].low < least || c->lens[n].high > s->tokens)
            return kgen_fail(err, KGEN_E_ARG, "lens: %d..%d of sequence %d is not in %d..%d",
                             c->lens[n].low, c->lens[n].high, n, least, s->tokens);
        if (c->ring[n].high > s->ring)
            return kgen_fail(err, KGEN_E_ARG, "ring: %d..%d of sequence %d is not in 0..%d",
                             c->ring[n].low, c->ring[n].high, n, s->ring);
    }
    if (c->astray && (!s->varlen || !drawn->seqs))
        return kgen_fail(err, KGEN_E_ARG,
                         "astray=1: no cu_seqlens that could lead out of the rows");
    if (c->xstd <= 0 || c->sstd <= 0 || c->vmax <= 0)
        return kgen_fail(err, KGEN_E_ARG, "xstd, sstd, vmax: must be positive");
    return KGEN_OK;
}

/* Short and whole sequences, one that is none, strides that are not dense. */
static void alone(char *out, size_t size, const kgen_spec *spec, int heads) {
    const kgen_gdn_spec *s = &spec->gdn;
    (void)heads;
    int used = snprintf(out, size, "seqs=3 pads=1 tail=1 extra=1 slotpad=1 rowpad=8");
    if (s->varlen)
        used += snprintf(out + used, size - (size_t)used, " lens=%d,rand:0..%d,rand:1..%d",
                         s->tokens, s->tokens, s->tokens);
    if (s->accept) used += snprintf(out + used, size - (size_t)used, " acc=rand:1..%d", s->tokens);
    if (s->ring) snprintf(out + used, size - (size_t)used, " ring=rand:0..%d", s->ring);
}

static kgen_status answer(kgen__answer *out, const kgen__data *data, kgen_error *err) {
    return kgen__gdn_reference(out, &data->spec, data, err);
}

const kgen__check_family kgen__check_family_gdn = {
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
    .implied = implied,
    .settle = settle,
    .random = kgen__gdn_random,
    .alone = alone,
    .shape = kgen__gdn_shape,
    .fill = kgen__gdn_fill,
    .refill = kgen__gdn_refill,
    .answer = answer,
    .sound = kgen__gdn_sound,
};
