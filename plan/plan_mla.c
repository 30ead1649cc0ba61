/* Layers of latent attention in a plan, and the kernels of their cache: a row is the latent
 * and, behind it, the part that carries the position. Views of the pool are keys (the
 * latter) and values (the former) to what writes and gathers. */
#include <stdio.h>

#include "profile.h"

/* Where a recurrent state decides the page, the engine does: it is given at launch. */
int32_t kgen__latent_page(const kgen__profile *p) {
    int hybrid = kgen__model_layers(p->model, KGEN__MIX_DELTA) > 0;
    return hybrid && !p->options.page && p->page > 1 ? KGEN_PAGE_X16 : p->page;
}

/* What engines make of an 8-bit cache whose rows an indexer picks: the latent with scales of
 * its own (vLLM's fp8_ds_mla). */
static void set_rows(kgen_mla_spec *s) {
    if (!s->sparse ||
        (s->kv != KGEN_DTYPE_FP8 && s->kv != KGEN_DTYPE_E4M3FN && s->kv != KGEN_DTYPE_E4M3FNUZ))
        return;
    s->rows = s->kv;
    s->kv = s->q;
}

kgen_status kgen__mla_spec(kgen_spec *out, const kgen__profile *p, const kgen__layer *layer,
                           kgen_phase phase, kgen_error *err) {
    kgen__rank rank;
    KGEN_TRY(kgen__rank_of(p, layer, &rank, err));
    KGEN_TRY(kgen_spec_parse(out, "mla:", err));
    kgen_mla_spec *s = &out->mla;
    s->sparse = p->model->topk > 0;
    s->phase = phase == KGEN_PHASE_VERIFY ? KGEN_MLA_VERIFY : KGEN_MLA_DECODE;
    s->q_tokens = kgen__phase_tokens(p, phase);
    s->q = (int32_t)p->x;
    s->kv = (int32_t)p->kv;
    s->latent = (int32_t)p->model->kv_lora_rank;
    s->rope = (int32_t)p->model->rope_dim;
    s->heads = (int32_t)rank.heads;
    s->page = s->sparse ? 1 : kgen__latent_page(p);
    s->table = p->options.table == KGEN_DTYPE_I64;
    set_rows(s);
    return KGEN_OK;
}

static void set_write(kgen_spec *spec, const kgen_mla_spec *mla, int32_t page) {
    kgen_kv_write_spec *s = &spec->kv_write;
    s->x = mla->q;
    s->kv = mla->rows ? mla->rows : mla->kv;
    if (mla->rows) s->scale = KGEN_DESCALE_BLOCK;
    s->head_dim = mla->rope;
    s->v_dim = mla->latent;
    s->page = page;
}

static void set_gather(kgen_spec *spec, const kgen_mla_spec *mla, int32_t page) {
    kgen_kv_gather_spec *s = &spec->kv_gather;
    s->out = mla->q;
    s->kv = mla->rows ? mla->rows : mla->kv;
    if (mla->rows) s->descale = KGEN_DESCALE_BLOCK;
    s->head_dim = mla->rope;
    s->v_dim = mla->latent;
    s->page = page;
    s->table = mla->table;
}

static const struct {
    int engines; /* a bit each */
    int prompts; /* those that expand cached latents again */
    const char *line, *note;
    void (*set)(kgen_spec *spec, const kgen_mla_spec *mla, int32_t page);
} rows[] = {
    {1 << KGEN_ENGINE_VLLM | 1 << KGEN_ENGINE_SGLANG, 0,
     "kv_write:", "new latents and rope parts into the cache", set_write},
    {1 << KGEN_ENGINE_VLLM | 1 << KGEN_ENGINE_SGLANG, 1,
     "kv_gather:", "latents and rope parts of a chunked prefill out of the cache", set_gather},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

size_t kgen__latent_rows(void) { return ROWS; }

kgen_status kgen__latent_item(kgen_plan_item *out, size_t index, const kgen__profile *p,
                              const kgen_mla_spec *mla, int *wanted, kgen_error *err) {
    int expands = (!p->model->topk || mla->rows) && p->options.prompts == KGEN_PROMPTS_ENGINE;
    *wanted = (rows[index].engines >> p->options.engine & 1) && (expands || !rows[index].prompts);
    if (!*wanted) return KGEN_OK;
    snprintf(out->note, sizeof out->note, "%s", rows[index].note);
    KGEN_TRY(kgen_spec_parse(&out->spec, rows[index].line, err));
    rows[index].set(&out->spec, mla, kgen__latent_page(p));
    return kgen_spec_validate(&out->spec, NULL, err);
}
