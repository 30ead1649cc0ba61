/* A launch of mla as one of attention: one KV head whose group is all heads, and values
 * that are a part of the keys. The definition of latent attention is that of attention
 * with these tensors, so one reference serves both. */
#include <string.h>

#include "check_attn.h"
#include "check_mla.h"

void kgen__mla_attn_spec(kgen_spec *out, const kgen_mla_spec *s) {
    static const int32_t phases[] = {[KGEN_MLA_DECODE] = KGEN_PHASE_DECODE,
                                     [KGEN_MLA_VERIFY] = KGEN_PHASE_VERIFY,
                                     [KGEN_MLA_TREE] = KGEN_PHASE_TREE};
    kgen_error none;
    kgen_spec_parse(out, "attn:causal=1", &none);
    kgen_attn_spec *a = &out->attn;
    a->phase = phases[s->phase];
    a->word = s->word;
    a->q = s->q, a->kv = s->kv, a->out = s->out;
    a->head_dim = s->latent + s->rope;
    a->v_dim = s->latent;
    a->group = s->heads;
    a->q_tokens = s->q_tokens;
    a->page = s->page;
    a->layout = KGEN_LAYOUT_NHD;
    a->table = s->table, a->flat = s->flat, a->len = s->len, a->offsets = s->offsets;
    a->window = s->window, a->sinks = s->sinks, a->lse = s->lse, a->descale = s->descale;
}

/* [NB][page][L+R] as [NB][page][1][width]. */
static kgen_tensor side_of(const kgen_tensor *cache, int64_t width, int joined) {
    kgen_tensor t = *cache;
    int32_t last = t.rank - 1;
    t.layout = KGEN_LAYOUT_NHD;
    t.rank = 4;
    t.shape[2] = 1;
    t.stride[2] = cache->shape[last];
    t.shape[3] = width;
    t.stride[3] = 1;
    if (!joined) return t;
    t.shape[0] *= t.shape[1]; /* slots count through all pages */
    t.stride[0] = t.stride[1];
    t.shape[1] = 1;
    return t;
}

void kgen__mla_attn_args(kgen_attn_args *out, const kgen_mla_spec *s, const kgen_mla_args *a,
                         const kgen_tensor *pool) {
    *out = (kgen_attn_args){.q = a->q,
                            .out = a->out,
                            .block_table = s->sparse ? a->slots : a->block_table,
                            .kv_indptr = a->kv_indptr,
                            .kv_indices = a->kv_indices,
                            .seq_lens = a->seq_lens,
                            .cu_seqlens_q = a->cu_seqlens_q,
                            .words = a->words,
                            .k_descale = a->descale,
                            .v_descale = a->descale,
                            .out_scale = a->out_scale,
                            .sinks = a->sinks,
                            .lse = a->lse,
                            .error = a->error,
                            .softmax_scale = a->softmax_scale,
                            .window = a->window};
    out->k = side_of(pool, s->latent + s->rope, s->sparse);
    out->v = side_of(pool, s->latent, s->sparse);
}

void kgen__mla_as_attn(kgen__data *out, const kgen__data *data, const kgen_tensor *pool) {
    static const struct {
        int mine, attn;
    } pairs[] = {{MLA_Q, Q},
                 {MLA_CACHE, K},
                 {MLA_OUT, OUT},
                 {MLA_TABLE, TABLE},
                 {MLA_INDPTR, INDPTR},
                 {MLA_INDICES, INDICES},
                 {MLA_CU, CU},
                 {MLA_MASKS, MASKS},
                 {MLA_SEQ_LENS, SEQ_LENS},
                 {MLA_DESCALE, K_DESCALE},
                 {MLA_SINKS, SINKS},
                 {MLA_OUT_SCALE, OUT_SCALE},
                 {MLA_LSE, LSE},
                 {MLA_ERROR, ERROR}};
    memset(out, 0, sizeof *out);
    out->shape.seqs = data->shape.seqs;
    out->shape.attn = data->shape.mla;
    kgen__mla_attn_spec(&out->spec, &data->spec.mla);
    out->shape.spec = out->spec;
    kgen_args_init(&out->args, &out->room, &out->spec);
    kgen__mla_attn_args(out->args.attn, &data->spec.mla, data->args.mla, pool);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        out->slot[pairs[i].attn] = data->slot[pairs[i].mine];
        out->slot[pairs[i].attn].view_of = pairs[i].attn;
    }
    if (data->spec.mla.sparse) {
        out->slot[TABLE] = data->slot[MLA_LISTS];
        out->slot[TABLE].view_of = TABLE;
    }
    if (pool != &data->args.mla->cache)
        out->slot[K] =
            (kgen__slot){.bytes = pool->data, .size = kgen__tensor_bytes(pool), .view_of = K};
    out->slot[V] = (kgen__slot){.view_of = K, .offset = out->slot[K].offset};
    out->slot[V_DESCALE] = (kgen__slot){.view_of = K_DESCALE};
}
