/* Random cases of gdn over the grid: every choice is a row of a table, and what
 * contradicts itself is left to kgen_spec_validate to throw out. */
#include <string.h>

#include "check_gdn.h"

enum { DEFAULT_BUDGET = 24 };

#define CHOICE(field, often, ...) KGEN__CHOICE(gdn.field, often, __VA_ARGS__)
#define F_TYPES KGEN_DTYPE_F32, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16

static const kgen__choice choices[] = {
    CHOICE(fuse, 8, KGEN_FUSE_A, KGEN_FUSE_B, KGEN_FUSE_C, KGEN_FUSE_D, KGEN_FUSE_E, KGEN_FUSE_E),
    CHOICE(layout, 8, KGEN_ROWS_INTERLEAVED, KGEN_ROWS_FLAT, KGEN_ROWS_PRESPLIT),
    CHOICE(x, 4, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16),
    CHOICE(qkv, 2, 0, 1),
    CHOICE(k_heads, 8, 1, 1, 2, 2, 3, 4),
    CHOICE(k_dim, 8, 64, 64, 64, 96, 128, 128, 192, 256),
    CHOICE(v_dim, 8, 64, 64, 64, 96, 128, 128, 192, 256),
    CHOICE(state, 8, F_TYPES),
    CHOICE(state_layout, 8, KGEN_STATE_VK, KGEN_STATE_KV),
    CHOICE(head_map, 2, 0, 1),
    CHOICE(channels, 2, 0, 1, 6, 64, 250, 1028),
    CHOICE(conv_width, 4, 4, 2, 3, 5),
    CHOICE(conv_layout, 8, KGEN_CONV_SD, KGEN_CONV_DS),
    CHOICE(circular, 2, 0, 1, 1),
    CHOICE(conv_state, 2, 0, F_TYPES),
    CHOICE(conv_weight, 2, 0, F_TYPES),
    CHOICE(conv_bias, 2, 0, 1),
    CHOICE(conv_act, 1, 1, 0),
    CHOICE(gate, 3, KGEN_GATE_GDN, KGEN_GATE_KDA, KGEN_GATE_KDA_BOUND),
    CHOICE(raw_gates, 2, 0, 1),
    CHOICE(ab, 2, 0, F_TYPES),
    CHOICE(a_log, 3, F_TYPES),
    CHOICE(dt_bias, 2, 0, F_TYPES),
    CHOICE(l2norm, 1, 1, 0),
    CHOICE(out_gate, 3, 0, 1),
    CHOICE(norm, 3, 0, F_TYPES),
    CHOICE(out, 4, 0, KGEN_DTYPE_BF16, KGEN_DTYPE_FP16, KGEN_DTYPE_F32, KGEN_DTYPE_FP8,
           KGEN_DTYPE_E4M3FN, KGEN_DTYPE_E4M3FNUZ),
    CHOICE(tokens, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16),
    CHOICE(varlen, 4, 0, 1),
    CHOICE(cu_type, 3, 0, 1),
    CHOICE(accept_type, 3, 0, 1),
    CHOICE(index, 6, KGEN_INDEX_ONE, KGEN_INDEX_PAIR, KGEN_INDEX_SPEC, KGEN_INDEX_BLOCKS),
    CHOICE(index_type, 2, 0, 1),
    CHOICE(sentinel, 5, KGEN_SENTINEL_NEG, KGEN_SENTINEL_NONPOS, KGEN_SENTINEL_VALUE),
    CHOICE(accept, 3, 0, 1),
    CHOICE(save, 6, KGEN_SAVE_FINAL, KGEN_SAVE_SLOTS, KGEN_SAVE_BUFFER, KGEN_SAVE_NONE,
           KGEN_SAVE_REPLAY),
    CHOICE(tree, 3, 0, 1),
    CHOICE(conv_round, 1, 1, 0),
    CHOICE(beta_round, 1, 0, 1),
    CHOICE(o_round, 1, 1, 0),
    CHOICE(state_round, 1, 0, 1),
};

/* A level has no values for what it does not read. */
static void reset(kgen_spec *spec) {
    static const size_t conv[] = {
        offsetof(kgen_gdn_spec, conv_width), offsetof(kgen_gdn_spec, conv_layout),
        offsetof(kgen_gdn_spec, conv_state), offsetof(kgen_gdn_spec, conv_weight),
        offsetof(kgen_gdn_spec, conv_bias),  offsetof(kgen_gdn_spec, conv_act),
        offsetof(kgen_gdn_spec, conv_round)};
    static const size_t steps[] = {
        offsetof(kgen_gdn_spec, state_layout), offsetof(kgen_gdn_spec, gate),
        offsetof(kgen_gdn_spec, raw_gates),    offsetof(kgen_gdn_spec, ab),
        offsetof(kgen_gdn_spec, a_log),        offsetof(kgen_gdn_spec, dt_bias),
        offsetof(kgen_gdn_spec, l2norm),       offsetof(kgen_gdn_spec, head_map),
        offsetof(kgen_gdn_spec, beta_round),   offsetof(kgen_gdn_spec, state_round),
        offsetof(kgen_gdn_spec, ring)};
    static const size_t norms[] = {offsetof(kgen_gdn_spec, o_round),
                                   offsetof(kgen_gdn_spec, out_gate),
                                   offsetof(kgen_gdn_spec, norm)};
    static const struct {
        int (*has)(const kgen_gdn_spec *);
        const size_t *offsets;
        size_t count;
    } parts[] = {{kgen__gdn_has_conv, conv, sizeof conv / sizeof conv[0]},
                 {kgen__gdn_has_step, steps, sizeof steps / sizeof steps[0]},
                 {kgen__gdn_has_norm, norms, sizeof norms / sizeof norms[0]}};
    kgen_spec plain;
    if (kgen_spec_parse(&plain, "gdn:layout=flat", NULL) != KGEN_OK) return;
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++)
        for (size_t i = 0; !parts[p].has(&spec->gdn) && i < parts[p].count; i++)
            memcpy((char *)&spec->gdn + parts[p].offsets[i],
                   (const char *)&plain.gdn + parts[p].offsets[i], sizeof(int32_t));
}

static void finish(kgen_spec *spec, kgen__rng *rng) {
    kgen_gdn_spec *s = &spec->gdn;
    s->v_heads = s->k_heads * KGEN__PICK(rng, 1, 2, 2, 3, 4, 8);
    if (s->index == KGEN_INDEX_SPEC) {
        s->accept = 1;
        s->save = KGEN_SAVE_SLOTS;
    }
    if (s->save == KGEN_SAVE_REPLAY) s->ring = (int32_t)kgen__rng_range(rng, s->tokens, 16);
    if (s->fuse == KGEN_FUSE_C && s->layout == KGEN_ROWS_PRESPLIT && kgen__chance(rng, 3))
        s->x = KGEN_DTYPE_F32, s->out = 0;
    if (!s->accept) s->accept_type = 0;
    if (!s->varlen) s->cu_type = 0;
    if (kgen__gdn_has_conv(s)) s->qkv = 0;
    if (s->fuse != KGEN_FUSE_C || s->layout != KGEN_ROWS_PRESPLIT) s->channels = 0;
    if (s->raw_gates) s->a_log = KGEN_DTYPE_F32, s->dt_bias = 0;
    if (!kgen__gdn_has_conv(s)) s->circular = 0;
    if (s->circular) s->index = KGEN_INDEX_ONE, s->accept = s->accept_type = s->tree = 0;
    if (s->circular && s->save != KGEN_SAVE_NONE) s->save = KGEN_SAVE_FINAL, s->ring = 0;
    reset(spec);
    if (s->channels) s->k_heads = 16, s->v_heads = 32, s->k_dim = s->v_dim = 128;
}

static int32_t accepted_of(const kgen_gdn_spec *s, kgen__rng *rng) {
    if (kgen__chance(rng, 7)) return (int32_t)kgen__rng_range(rng, 1, s->tokens);
    return KGEN__PICK(rng, 0, 9, 100, KGEN__CASE_LENGTH_MAX);
}

static void random_sequences(kgen__case *c, kgen__rng *rng, int64_t budget) {
    const kgen_gdn_spec *s = &c->spec.gdn;
    int64_t head = (int64_t)s->v_heads * s->k_dim * s->v_dim;
    int64_t left = budget * 128 * 128 / head;
    c->seqs = KGEN__PICK(rng, 0, 1, 1, 2, 2, 3, 4, 5);
    for (int32_t n = 0; n < c->seqs; n++) {
        int32_t tokens = s->tokens;
        if (s->varlen && (kgen__chance(rng, 5) || left < tokens))
            tokens = (int32_t)kgen__rng_range(rng, 0, left < tokens && left > 0 ? left : tokens);
        left -= tokens;
        int32_t accepted = s->accept ? accepted_of(s, rng) : 1;
        int32_t ring = (int32_t)kgen__rng_range(rng, 0, s->ring);
        c->gdn.lens[n] = (kgen__span){tokens, tokens};
        c->gdn.accepted[n] = (kgen__span){accepted, accepted};
        c->gdn.ring[n] = (kgen__span){ring, ring};
        if (left <= 0) c->seqs = n + 1;
    }
}

static void random_tensors(kgen__gdn_case *c, kgen__rng *rng) {
    c->slotpad = KGEN__PICK(rng, 0, 0, 1, 3);
    c->rowpad = KGEN__PICK(rng, 0, 0, 1, 8);
    c->outpad = KGEN__PICK(rng, 0, 0, 1, 16);
    c->headpad = KGEN__PICK(rng, 0, 0, 0, 1, 8);
    c->idxpad = KGEN__PICK(rng, 0, 0, 1, 5);
    c->idxstep = KGEN__PICK(rng, 1, 1, 1, 2);
    c->cols = KGEN__PICK(rng, 0, 0, 1, 3);
    c->scols = KGEN__PICK(rng, 0, 0, 1, 3);
    c->steps = KGEN__PICK(rng, 0, 0, 1);
    c->rows = KGEN__PICK(rng, 0, 0, 1, 5);
    c->off = KGEN__PICK(rng, 0, 0, 0, 1);
    c->wide = KGEN__PICK(rng, 0, 0, 1);
}

static void random_rest(kgen__case *drawn, kgen__rng *rng) {
    kgen__gdn_case *c = &drawn->gdn;
    int32_t all = drawn->seqs ? drawn->seqs : 1;
    c->pads = KGEN__PICK(rng, 0, 0, 0, 1, 1, all);
    c->same = drawn->spec.gdn.index != KGEN_INDEX_ONE && kgen__chance(rng, 1);
    c->wpads = c->same ? 0 : KGEN__PICK(rng, 0, 0, 1);
    c->tail = KGEN__PICK(rng, 0, 0, 1, 3);
    c->extra = KGEN__PICK(rng, 0, 1, 3);
    c->astray = drawn->spec.gdn.varlen && drawn->seqs && kgen__chance(rng, 1);
    c->lines = KGEN__PICK(rng, 0, 1);
    c->windows = KGEN__PICK(rng, 1, 1, 0);
    c->copies = KGEN__PICK(rng, 1, 1, 0);
    c->init = KGEN__PICK(rng, 0, 0, 0, 1);
    c->scalet = KGEN__PICK(rng, 0, 1);
    c->extremes = c->poison = 1;
    c->xstd = KGEN__PICK(rng, 5, 7, 7, 10) / 10.0;
    c->sstd = KGEN__PICK(rng, 1, 5, 5, 10) / 10.0;
    c->vmax = KGEN__PICK(rng, 30, 300, 300);
}

kgen_status kgen__gdn_random(kgen__case *out, kgen__rng *rng, const kgen_target *target,
                             int64_t budget, kgen_error *err) {
    kgen__case c;
    memset(&c, 0, sizeof c);
    KGEN_TRY(kgen_spec_parse(&c.spec, "gdn:layout=flat", err));
    KGEN_TRY(kgen__random_spec(&c.spec, choices, sizeof choices / sizeof choices[0], finish, rng,
                               target, err));
    random_sequences(&c, rng, budget > 0 ? budget : DEFAULT_BUDGET);
    random_tensors(&c.gdn, rng);
    random_rest(&c, rng);
    *out = c;
    return KGEN_OK;
}
