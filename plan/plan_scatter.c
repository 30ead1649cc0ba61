/* Metadata kernels of a plan: what an engine launches around the layers of a
 * step, and of a speculative step with a chain of draft tokens. */
#include <stdio.h>

#include "profile.h"

/* `keys` is put behind the op; a row with `paged` also gets the page size, one
 * with `windowed` the slot mapping of models with sliding windows. `draft`: only
 * steps with draft tokens have it. `table`: the key of 64-bit block tables, which
 * SGLang's rows write and vLLM's read. */
typedef struct metadata_row {
    kgen_engine engine;
    const char *keys;
    int draft, paged, windowed;
    const char *table, *note;
} metadata_row;

static const char written[] = ",table=i64", given[] = ",slot=i64";

/* clang-format off */
static const metadata_row rows[] = {
    {KGEN_ENGINE_SGLANG, "op=page_table_requests", 0, 1, 1, written, "block tables of a decode step"},
    {KGEN_ENGINE_SGLANG, "op=page_table_ragged", 0, 1, 1, written, "block tables out of ragged indices"},
    {KGEN_ENGINE_SGLANG, "op=spec_prepare", 1, 1, 1, written, "lengths, indptrs, page tables of a step, whole"},
    {KGEN_ENGINE_SGLANG, "op=spec_prepare,delta=1", 1, 1, 1, written, "the same, only pages that changed"},
    {KGEN_ENGINE_SGLANG, "op=draft_page_table", 1, 1, 0, written, "block tables of all draft steps"},
    {KGEN_ENGINE_SGLANG, "op=draft_lens", 1, 0, 0, NULL, "lengths of draft extend"},
    {KGEN_ENGINE_SGLANG, "op=cache_locs,form=draft", 1, 1, 0, NULL, "cache locations of the draft tokens"},
    {KGEN_ENGINE_SGLANG, "op=assign_locs,form=ragged", 1, 0, 0, NULL, "requests to tokens"},
    {KGEN_ENGINE_SGLANG, "op=bonus_tokens", 1, 0, 0, NULL, "the token after the accepted ones"},
    {KGEN_ENGINE_SGLANG, "op=accept_locs", 1, 0, 0, NULL, "cache locations of accepted tokens"},
    {KGEN_ENGINE_VLLM, "op=slot_mapping", 0, 1, 0, given, "slots of the batch's tokens"},
    {KGEN_ENGINE_VLLM, "op=eagle_step", 1, 1, 0, given, "positions and slots of the next draft step"},
    {KGEN_ENGINE_VLLM, "op=padded_inputs", 1, 0, 0, NULL, "inputs of a padded draft batch"},
    {KGEN_ENGINE_VLLM, "op=next_token,token=i32", 1, 0, 0, NULL, "next tokens out of the sampled ones"},
    {KGEN_ENGINE_VLLM, "op=draft_lens", 1, 0, 0, NULL, "lengths of draft extend"},
};
/* clang-format on */
enum { ROWS = sizeof rows / sizeof rows[0] };

size_t kgen__metadata_rows(void) { return ROWS; }

kgen_status kgen__metadata_item(kgen_plan_item *out, size_t index, const kgen__profile *p,
                                int windowed, int *wanted, kgen_error *err) {
    const metadata_row *row = &rows[index];
    char line[128], pages[24] = "";
    *wanted = row->engine == p->options.engine && (!row->draft || p->options.spec_width);
    if (!*wanted) return KGEN_OK;
    if (row->paged) snprintf(pages, sizeof pages, ",page=%d", p->page);
    snprintf(line, sizeof line, "scatter:%s%s%s%s", row->keys, pages,
             row->windowed && windowed ? ",swa=1" : "",
             row->table && p->options.table == KGEN_DTYPE_I64 ? row->table : "");
    snprintf(out->note, sizeof out->note, "metadata: %s", row->note);
    return kgen_spec_parse(&out->spec, line, err);
}
