/* Metadata kernels of a plan: what an engine launches around the layers of a
 * speculative step with a chain of draft tokens. */
#include <stdio.h>

#include "plan_model.h"

/* `keys` is put behind the op; a row with `paged` also gets the page size, one
 * with `windowed` the slot mapping of models with sliding windows. */
typedef struct metadata_row {
    kgen_engine engine;
    const char *keys;
    int paged, windowed;
    const char *note;
} metadata_row;

static const metadata_row rows[] = {
    {KGEN_ENGINE_SGLANG, "op=spec_prepare", 1, 1, "lengths, indptrs, page tables of a step, whole"},
    {KGEN_ENGINE_SGLANG, "op=spec_prepare,delta=1", 1, 1, "the same, only pages that changed"},
    {KGEN_ENGINE_SGLANG, "op=draft_kv_indices", 1, 0, "KV indices of all draft steps"},
    {KGEN_ENGINE_SGLANG, "op=draft_lens", 0, 0, "lengths of draft extend"},
    {KGEN_ENGINE_SGLANG, "op=cache_locs,form=draft", 1, 0, "cache locations of the draft tokens"},
    {KGEN_ENGINE_SGLANG, "op=assign_locs,form=ragged", 0, 0, "requests to tokens"},
    {KGEN_ENGINE_SGLANG, "op=bonus_tokens", 0, 0, "the token after the accepted ones"},
    {KGEN_ENGINE_SGLANG, "op=accept_locs", 0, 0, "cache locations of accepted tokens"},
    {KGEN_ENGINE_VLLM, "op=slot_mapping", 1, 0, "slots of the batch's tokens"},
    {KGEN_ENGINE_VLLM, "op=eagle_step", 1, 0, "positions and slots of the next draft step"},
    {KGEN_ENGINE_VLLM, "op=padded_inputs", 0, 0, "inputs of a padded draft batch"},
    {KGEN_ENGINE_VLLM, "op=next_token,token=i32", 0, 0, "next tokens out of the sampled ones"},
    {KGEN_ENGINE_VLLM, "op=draft_lens", 0, 0, "lengths of draft extend"},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

size_t kgen__metadata_rows(void) { return ROWS; }

kgen_status kgen__metadata_item(kgen_plan_item *out, size_t index, kgen_engine engine, int page,
                                int windowed, int *wanted, kgen_error *err) {
    const metadata_row *row = &rows[index];
    char line[96], pages[24] = "";
    *wanted = row->engine == engine;
    if (!*wanted) return KGEN_OK;
    if (row->paged) snprintf(pages, sizeof pages, ",page=%d", page);
    snprintf(line, sizeof line, "scatter:%s%s%s", row->keys, pages,
             row->windowed && windowed ? ",swa=1" : "");
    snprintf(out->note, sizeof out->note, "metadata: %s", row->note);
    return kgen_spec_parse(&out->spec, line, err);
}
