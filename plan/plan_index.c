/* The indexer of sparse latent attention in a plan. All ranks have all of its heads: it is
 * not divided. */
#include <stdio.h>

#include "profile.h"

enum { TABLE = 1, PROMPT = 2, DRAFT = 4 }; /* TABLE: it reads one */

static const struct {
    int flags;
    const char *line, *note;
} rows[] = {
    {0, "indexer:op=write", "the indexer's keys into their cache"},
    {TABLE, "indexer:op=decode,clean=0", "the indexer's logits of a decode step"},
    {TABLE, "indexer:op=topk,to=slot", "rows that tokens of a decode step see"},
    {TABLE | DRAFT, "indexer:op=decode,clean=0", "the indexer's logits of draft tokens"},
    {TABLE | DRAFT, "indexer:op=topk,to=slot", "rows that draft tokens see"},
    {TABLE | PROMPT, "indexer:op=gather", "the indexer's keys of prompts out of their cache"},
    {PROMPT, "indexer:op=prefill,clean=0", "the indexer's logits of prompts"},
    {TABLE | PROMPT, "indexer:op=topk,ranges=1,to=slot", "rows that tokens of prompts see"},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

size_t kgen__index_rows(void) { return ROWS; }

/* What an op does not read stays as it is. */
static void set(kgen_indexer_spec *s, const kgen__profile *p, int flags) {
    int logits = s->op == KGEN_INDEX_DECODE || s->op == KGEN_INDEX_PREFILL;
    if (s->op == KGEN_INDEX_WRITE) s->x = (int32_t)p->x;
    if (s->op != KGEN_INDEX_TOPK) s->head_dim = (int32_t)p->model->index_dim;
    if (s->op != KGEN_INDEX_PREFILL) s->page = kgen__latent_page(p);
    if (logits) s->heads = (int32_t)p->model->index_heads;
    if (flags & TABLE) s->table = p->options.table == KGEN_DTYPE_I64;
    if (flags & DRAFT) s->q_tokens = p->options.spec_width + 1;
}

kgen_status kgen__index_item(kgen_plan_item *out, size_t index, const kgen__profile *p, int *wanted,
                             kgen_error *err) {
    int flags = rows[index].flags;
    *wanted = (!(flags & DRAFT) || p->options.spec_width) &&
              (!(flags & PROMPT) || p->options.prompts != KGEN_PROMPTS_NONE);
    if (!*wanted) return KGEN_OK;
    snprintf(out->note, sizeof out->note, "%s", rows[index].note);
    KGEN_TRY(kgen_spec_parse(&out->spec, rows[index].line, err));
    set(&out->spec.indexer, p, flags);
    return kgen_spec_validate(&out->spec, NULL, err);
}
