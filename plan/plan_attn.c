/* Attention layers of a plan. */
#include "profile.h"

/* More ranks than KV heads: each KV head is replicated and its group shared
 * out, so the group of a rank shrinks. */
kgen_status kgen__rank_of(const kgen__profile *p, const kgen__layer *layer, kgen__rank *out,
                          kgen_error *err) {
    int64_t heads = layer->heads, kv_heads = layer->kv_heads, tp = p->options.tp;
    if (heads % tp)
        return kgen_fail(err, KGEN_E_CONFIG, "num_attention_heads=%lld: not divisible by tp=%lld",
                         (long long)heads, (long long)tp);
    if (heads % kv_heads)
        return kgen_fail(err, KGEN_E_CONFIG,
                         "num_attention_heads=%lld: not divisible by num_key_value_heads=%lld",
                         (long long)heads, (long long)kv_heads);
    if (kv_heads % tp && tp % kv_heads)
        return kgen_fail(err, KGEN_E_CONFIG,
                         "num_key_value_heads=%lld: neither a multiple nor a divisor of tp=%lld",
                         (long long)kv_heads, (long long)tp);
    out->heads = heads / tp;
    out->kv_heads = kv_heads > tp ? kv_heads / tp : 1;
    return KGEN_OK;
}

/* Integers have a scale for each token and head; vLLM keeps those beside shuffled
 * 8-bit pages too. */
static int32_t descale_of(const kgen__profile *p) {
    int integer = p->kv == KGEN_DTYPE_I8 || p->kv == KGEN_DTYPE_I4;
    if (integer && !p->options.descale) return KGEN_DESCALE_TOKEN;
    if (p->options.descale == KGEN_DESCALE_TOKEN) return KGEN_DESCALE_TOKEN;
    if (p->options.descale) return KGEN_DESCALE_AUTO; /* a head's: of 8-bit caches */
    int shuffled =
        p->options.engine == KGEN_ENGINE_VLLM && p->options.layout == KGEN_LAYOUT_SHUFFLE;
    return shuffled && kgen_dtype_size(p->kv) == 1 ? KGEN_DESCALE_TOKEN : KGEN_DESCALE_AUTO;
}

int32_t kgen__phase_tokens(const kgen__profile *p, kgen_phase phase) {
    return kgen_attn_phase_of(phase)->most_tokens > 1 ? p->options.spec_width + 1 : 1;
}

kgen_status kgen__attn_spec(kgen_spec *out, const kgen__profile *p, const kgen__layer *layer,
                            const kgen__rank *rank, kgen_phase phase, kgen_error *err) {
    KGEN_TRY(kgen_spec_parse(out, "attn:", err));
    kgen_attn_spec *spec = &out->attn;
    spec->phase = phase;
    spec->q_tokens = kgen__phase_tokens(p, phase);
    spec->q = (int32_t)p->x;
    spec->kv = (int32_t)p->kv;
    spec->head_dim = (int32_t)layer->head_dim;
    spec->v_dim = layer->v_dim == layer->head_dim ? 0 : (int32_t)layer->v_dim;
    spec->group = (int32_t)(rank->heads / rank->kv_heads);
    spec->page = p->page;
    spec->layout = (int32_t)(p->options.layout ? p->options.layout : KGEN_LAYOUT_NHD);
    spec->table = p->options.table == KGEN_DTYPE_I64;
    spec->descale = descale_of(p);
    spec->window = (int32_t)layer->window;
    spec->softcap = layer->softcap > 0;
    spec->alibi = layer->alibi || p->options.alibi;
    spec->sinks = layer->sinks;
    return KGEN_OK;
}
