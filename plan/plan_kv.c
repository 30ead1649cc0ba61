/* Cache kernels of a plan: what an engine launches to write new keys and values
 * into the pages that attention reads, and to take cached ones out again. */
#include <stdio.h>

#include "profile.h"

enum { FULL = 1, SLIDING = 2 };

static void set_write(kgen_spec *spec, const kgen_attn_spec *attn) {
    kgen_kv_write_spec *s = &spec->kv_write;
    s->x = attn->q;
    s->kv = attn->kv;
    s->head_dim = attn->head_dim;
    s->v_dim = attn->v_dim;
    s->page = attn->page;
    s->layout = attn->layout;
    s->scale = attn->descale;
}

static void set_gather(kgen_spec *spec, const kgen_attn_spec *attn) {
    kgen_kv_gather_spec *s = &spec->kv_gather;
    s->out = attn->q;
    s->kv = attn->kv;
    s->head_dim = attn->head_dim;
    s->v_dim = attn->v_dim;
    s->page = attn->page;
    s->layout = attn->layout;
    s->table = attn->table;
    s->descale = attn->descale;
}

/* Neither engine rotates in its write. vLLM gathers the context of chunked
 * prefills; SGLang reads its pages in place, and keeps sliding layers in a pool
 * of their own, whose slots a table knows. */
static const struct {
    kgen_engine engine;
    int kinds;
    const char *line, *note;
    void (*set)(kgen_spec *spec, const kgen_attn_spec *attn);
} rows[] = {
    {KGEN_ENGINE_VLLM, FULL | SLIDING, "kv_write:", "new keys and values into the cache",
     set_write},
    {KGEN_ENGINE_VLLM, FULL, "kv_gather:", "context of a chunked prefill out of the cache",
     set_gather},
    {KGEN_ENGINE_VLLM, SLIDING, "kv_gather:from=end",
     "the window of a chunked prefill out of the cache", set_gather},
    {KGEN_ENGINE_SGLANG, FULL, "kv_write:", "new keys and values into the cache", set_write},
    {KGEN_ENGINE_SGLANG, SLIDING, "kv_write:remap=i64",
     "new keys and values into the sliding-window pool", set_write},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

size_t kgen__cache_rows(void) { return ROWS; }

kgen_status kgen__cache_item(kgen_plan_item *out, size_t index, const kgen__profile *p,
                             const kgen_attn_spec *attn, int *wanted, kgen_error *err) {
    int gathers = rows[index].set == set_gather;
    *wanted = rows[index].engine == p->options.engine &&
              (rows[index].kinds & (attn->window ? SLIDING : FULL)) != 0 &&
              (!gathers || p->options.prompts == KGEN_PROMPTS_ENGINE);
    if (!*wanted) return KGEN_OK;
    snprintf(out->note, sizeof out->note, "%s", rows[index].note);
    KGEN_TRY(kgen_spec_parse(&out->spec, rows[index].line, err));
    rows[index].set(&out->spec, attn);
    return kgen_spec_validate(&out->spec, NULL, err);
}
