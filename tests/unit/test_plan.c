/* Plans of real models, refusals, and hostile configs. argv[1]: the folder of
 * the model configs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <kgen/plan.h>

#include "seed.h"

#ifndef KGEN_CONFIGS_DIR
#define KGEN_CONFIGS_DIR "plan/configs"
#endif

enum { MUTATIONS = 700, TEXT_MAX = 16384 };

static const char *configs_dir = KGEN_CONFIGS_DIR;

static size_t read_model(const char *name, char *out, size_t size) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.json", configs_dir, name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    size_t length = fread(out, 1, size, file);
    fclose(file);
    assert_true(length > 0 && length < size);
    return length;
}

/* Rows of tests leave the size out. */
static kgen_status plan_bytes(kgen_plan *plan, const char *json, size_t size,
                              const kgen_plan_options *options, kgen_error *err) {
    kgen_plan_options sized = {0};
    if (options) sized = *options;
    sized.size = sizeof sized;
    err->text[0] = 0;
    return kgen_plan_make(plan, json, size, options ? &sized : NULL, err);
}

static kgen_status plan_text(kgen_plan *plan, const char *json, const kgen_plan_options *options,
                             kgen_error *err) {
    return plan_bytes(plan, json, strlen(json), options, err);
}

static kgen_status plan_model(kgen_plan *plan, const char *name, const kgen_plan_options *options,
                              kgen_error *err) {
    char json[TEXT_MAX];
    size_t size = read_model(name, json, sizeof json);
    return plan_bytes(plan, json, size, options, err);
}

static int mentions(const kgen_plan *plan, const char *words) {
    for (size_t i = 0; i < plan->unsupported_count; i++)
        if (strstr(plan->unsupported[i], words)) return 1;
    return 0;
}

/* ---- real models --------------------------------------------------------- */

typedef struct expected_item {
    const char *line;
    int layers, q_heads, kv_heads;
    double scale;
} expected_item;

typedef struct expected_plan {
    const char *model;
    kgen_plan_options options;
    expected_item items[4]; /* line NULL: no more */
    const char *missing;    /* a part of a sentence, or NULL */
} expected_plan;

#define V(ranks, kv, width) {.tp = (ranks), .kv_dtype = (kv), .spec_width = (width)}

static const expected_plan plans[] = {
    {"Llama-3.1-70B-Instruct",
     V(8, 0, 0),
     {{"attn:phase=decode,q=bf16,kv=bf16,d=128,g=8,page=16,layout=nhd", 80, 8, 1, 0.0883883476}},
     NULL},
    {"Llama-3.1-70B-Instruct",
     V(1, KGEN_DTYPE_FP8, 0),
     {{"attn:phase=decode,q=bf16,kv=fp8,d=128,g=8,page=16,layout=nhd", 80, 64, 8, 0.0883883476}},
     NULL},
    /* more ranks than KV heads: a rank has one KV head and half its group */
    {"Llama-3.1-8B-Instruct",
     V(16, 0, 0),
     {{"attn:phase=decode,q=bf16,kv=bf16,d=128,g=2,page=16,layout=nhd", 32, 2, 1, 0.0883883476}},
     NULL},
    {"Llama-3.1-8B-Instruct",
     V(1, 0, 3),
     {{"attn:phase=decode,q=bf16,kv=bf16,d=128,g=4,page=16,layout=nhd", 32, 32, 8, 0.0883883476},
      {"attn:phase=verify,q=bf16,kv=bf16,d=128,g=4,t=4,page=16,layout=nhd", 32, 32, 8,
       0.0883883476}},
     NULL},
    {"Mistral-7B-v0.1",
     V(1, 0, 0),
     {{"attn:phase=decode,q=bf16,kv=bf16,d=128,g=4,page=16,layout=nhd,window=4096", 32, 32, 8,
       0.0883883476}},
     NULL},
    {"Qwen3.5-35B-A3B",
     V(1, 0, 0),
     {{"attn:phase=decode,q=bf16,kv=bf16,d=256,g=8,page=1056,layout=nhd", 10, 16, 2, 0.0625},
      {"gdn:fuse=e,layout=flat,x=bf16,hk=16,hv=32,state=f32,sl=vk,pad=nonpos", 30, 16, 32,
       0.0883883476}},
     "prefill"},
    {"Qwen3.5-27B",
     V(8, KGEN_DTYPE_FP8, 3),
     {{"attn:phase=decode,q=bf16,kv=fp8,d=256,g=3,page=800,layout=nhd", 16, 3, 1, 0.0625},
      {"attn:phase=verify,q=bf16,kv=fp8,d=256,g=3,t=4,page=800,layout=nhd", 16, 3, 1, 0.0625},
      {"gdn:fuse=e,layout=flat,x=bf16,hk=2,hv=6,state=f32,sl=vk,pad=nonpos", 48, 2, 6,
       0.0883883476},
      {"gdn:fuse=e,layout=flat,x=bf16,hk=2,hv=6,state=f32,sl=vk,t=4,varlen=1,index=spec,pad=nonpos,"
       "accept=1,save=slots",
       48, 2, 6, 0.0883883476}},
     NULL},
    {"Qwen3.5-397B-A17B",
     {.tp = 2, .engine = KGEN_ENGINE_SGLANG, .spec_width = 1},
     {{"attn:phase=decode,q=bf16,kv=bf16,d=256,g=16,page=1,layout=nhd", 15, 16, 1, 0.0625},
      {"attn:phase=verify,q=bf16,kv=bf16,d=256,g=16,t=2,page=1,layout=nhd", 15, 16, 1, 0.0625},
      {"gdn:fuse=e,layout=flat,x=bf16,hk=8,hv=32,state=f32,sl=vk,cl=ds", 45, 8, 32, 0.0883883476},
      {"gdn:fuse=e,layout=flat,x=bf16,hk=8,hv=32,state=f32,sl=vk,cl=ds,t=2,save=buffer", 45, 8, 32,
       0.0883883476}},
     NULL},
    /* its config names no type of the state: vLLM takes the model's, SGLang f32 */
    {"Qwen3-Next-80B-A3B-Instruct",
     V(1, 0, 0),
     {{"attn:phase=decode,q=bf16,kv=bf16,d=256,g=8,page=544,layout=nhd", 12, 16, 2, 0.0625},
      {"gdn:fuse=e,layout=interleaved,x=bf16,hk=16,hv=32,state=bf16,sl=vk,pad=nonpos", 36, 16, 32,
       0.0883883476}},
     NULL},
    {"Qwen3-Next-80B-A3B-Instruct",
     {.tp = 1, .engine = KGEN_ENGINE_SGLANG},
     {{"attn:phase=decode,q=bf16,kv=bf16,d=256,g=8,page=1,layout=nhd", 12, 16, 2, 0.0625},
      {"gdn:fuse=e,layout=interleaved,x=bf16,hk=16,hv=32,state=f32,sl=vk,cl=ds", 36, 16, 32,
       0.0883883476}},
     NULL},
    {"Kimi-Linear-48B-A3B-Instruct",
     V(4, 0, 0),
     {{"mla:phase=decode,q=bf16,kv=bf16,l=512,r=64,h=8,page=x16", 7, 8, 1, 0.0721687836},
      {"gdn:fuse=e,layout=presplit,x=bf16,hk=8,hv=8,state=f32,sl=vk,cw=f32,gate=kda,dt=f32,"
       "ogate=sigmoid,pad=nonpos",
       20, 8, 8, 0.0883883476}},
     "20 of 27 layers are linear attention, whose prefill"},
    {"DeepSeek-V3",
     {.tp = 8, .engine = KGEN_ENGINE_SGLANG, .kv_dtype = KGEN_DTYPE_FP8, .spec_width = 3},
     {{"mla:phase=decode,q=bf16,kv=fp8,l=512,r=64,h=16,page=1", 61, 16, 1, 0.1352337789},
      {"mla:phase=verify,q=bf16,kv=fp8,l=512,r=64,h=16,t=4,page=1", 61, 16, 1, 0.1352337789}},
     NULL},
    {"../../tests/configs/DeepSeek-V3.2",
     {.tp = 8, .page = 64, .spec_width = 1},
     {{"mla:phase=decode,q=bf16,kv=bf16,l=512,r=64,h=16,page=1,sparse=1", 61, 16, 1, 0.1352337789}},
     NULL},
    {"../../tests/configs/Kimi-K2",
     V(8, 0, 0),
     {{"mla:phase=decode,q=bf16,kv=bf16,l=512,r=64,h=8,page=16", 61, 8, 1, 0.1308608000}},
     NULL},
    {"../../tests/configs/GLM-4.7-Flash",
     V(4, 0, 0),
     {{"mla:phase=decode,q=bf16,kv=bf16,l=512,r=64,h=5,page=16", 47, 5, 1, 0.0625}},
     NULL},
    {"gemma-2-27b-it",
     V(1, 0, 0),
     {{"attn:phase=decode,q=bf16,kv=bf16,d=128,g=2,page=16,layout=nhd,softcap=1", 23, 32, 16,
       1.0 / 12},
      {"attn:phase=decode,q=bf16,kv=bf16,d=128,g=2,page=16,layout=nhd,window=4096,softcap=1", 23,
       32, 16, 1.0 / 12}},
     NULL},
    {"gemma-3-27b-it",
     V(1, 0, 0),
     {{"attn:phase=decode,q=bf16,kv=bf16,d=128,g=2,page=16,layout=nhd", 10, 32, 16, 0.0771516750},
      {"attn:phase=decode,q=bf16,kv=bf16,d=128,g=2,page=16,layout=nhd,window=1024", 52, 32, 16,
       0.0771516750}},
     NULL},
    {"gpt-oss-120b",
     V(1, 0, 0),
     {{"attn:phase=decode,q=bf16,kv=bf16,d=64,g=8,page=16,layout=nhd,sinks=1", 18, 64, 8, 0.125},
      {"attn:phase=decode,q=bf16,kv=bf16,d=64,g=8,page=16,layout=nhd,window=128,sinks=1", 18, 64, 8,
       0.125}},
     NULL},
};

static void check_item(const kgen_plan_item *item, const expected_item *want) {
    char line[KGEN_SPEC_LINE_MAX];
    kgen_spec_print(line, &item->spec);
    assert_string_equal(line, want->line);
    assert_int_equal(item->layers, want->layers);
    assert_int_equal(item->q_heads, want->q_heads);
    assert_int_equal(item->kv_heads, want->kv_heads);
    assert_true(fabs(item->scale - want->scale) < 1e-9);
    int gdn = item->spec.family == KGEN_FAMILY_GDN,
        kda = gdn && item->spec.gdn.gate == KGEN_GATE_KDA;
    assert_true(item->norm_eps == (kda ? 1e-5 : gdn ? 1e-6 : 0));
    assert_true(item->l2_eps == (gdn ? 1e-6 : 0));
    assert_true(item->lower_bound == 0);
    assert_true(item->note[0]);
}

static int is_cache_kernel(const kgen_plan_item *item) {
    return item->spec.family == KGEN_FAMILY_KV_WRITE ||
           item->spec.family == KGEN_FAMILY_KV_GATHER || item->spec.family == KGEN_FAMILY_INDEXER;
}

/* And those of a prefix, which stand behind them. */
static int is_prompt_kernel(const kgen_plan_item *item) {
    return item->spec.family == KGEN_FAMILY_ATTN_MERGE ||
           (item->spec.family == KGEN_FAMILY_ATTN &&
            (item->spec.attn.cascade || !kgen_attn_phase_of(item->spec.attn.phase)->bounded));
}

static int is_layer_kernel(const kgen_plan_item *item) {
    int family = item->spec.family <= KGEN_FAMILY_GDN || item->spec.family == KGEN_FAMILY_MLA;
    return family && !is_prompt_kernel(item);
}

/* Kernels of layers; those of prompts come after them. */
static size_t layer_kernels(const kgen_plan *plan) {
    size_t count = 0;
    while (count < plan->count && is_layer_kernel(&plan->items[count])) count++;
    return count;
}

/* Where the kernels of the cache begin. */
static size_t first_cache(const kgen_plan *plan) {
    size_t first = layer_kernels(plan);
    while (first < plan->count && is_prompt_kernel(&plan->items[first])) first++;
    return first;
}

/* Where the kernels of metadata begin, which are the last. */
static size_t first_metadata(const kgen_plan *plan) {
    size_t first = first_cache(plan);
    while (first < plan->count && is_cache_kernel(&plan->items[first])) first++;
    for (size_t i = first; i < plan->count; i++)
        assert_int_equal(plan->items[i].spec.family, KGEN_FAMILY_SCATTER);
    return first;
}

static void test_real_models(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        const expected_plan *want = &plans[i];
        kgen_plan plan;
        kgen_error err;
        if (plan_model(&plan, want->model, &want->options, &err) != KGEN_OK)
            fail_msg("%s: %s", want->model, err.text);
        size_t count = 0;
        while (count < 4 && want->items[count].line) count++;
        if (layer_kernels(&plan) != count)
            fail_msg("%s: %zu kernels, not %zu", want->model, layer_kernels(&plan), count);
        int attention = plan.items[0].spec.family != KGEN_FAMILY_GDN;
        assert_int_equal(plan.count > first_metadata(&plan),
                         attention || want->options.spec_width > 0);
        for (size_t n = 0; n < count; n++) check_item(&plan.items[n], &want->items[n]);
        if (want->missing) assert_true(mentions(&plan, want->missing));
        kgen_plan_free(&plan);
    }
}

/* vLLM's pages of hybrid models: known values per width, KV type and draft. */
static void test_hybrid_pages(void **state) {
    static const struct {
        const char *model;
        int tp, width;
        kgen_dtype kv;
        int page;
    } rows[] = {
        {"Qwen3.5-35B-A3B", 1, 0, 0, 1056},
        {"Qwen3.5-35B-A3B", 2, 0, 0, 1056},
        {"Qwen3.5-35B-A3B", 4, 0, 0, 528},
        {"Qwen3.5-35B-A3B", 8, 0, 0, 272},
        {"Qwen3.5-27B", 1, 0, 0, 784},
        {"Qwen3.5-27B", 1, 0, KGEN_DTYPE_FP8, 1568},
        {"Qwen3.5-27B", 2, 3, KGEN_DTYPE_FP8, 1600}, /* draft tokens widen the conv state */
        {"Qwen3-Next-80B-A3B-Instruct", 2, 0, 0, 544},
        {"Qwen3-Next-80B-A3B-Instruct", 4, 0, 0, 272},
        {"Qwen3-Next-80B-A3B-Instruct", 8, 0, 0, 144},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const kgen_plan_options options = {
            .tp = rows[i].tp, .kv_dtype = rows[i].kv, .spec_width = rows[i].width};
        kgen_plan plan;
        kgen_error err;
        if (plan_model(&plan, rows[i].model, &options, &err) != KGEN_OK)
            fail_msg("%s: %s", rows[i].model, err.text);
        if (plan.items[0].spec.attn.page != rows[i].page)
            fail_msg("%s tp %d: page %d, not %d", rows[i].model, rows[i].tp,
                     plan.items[0].spec.attn.page, rows[i].page);
        kgen_plan_free(&plan);
    }
}

static void test_engine_and_overrides(void **state) {
    kgen_plan_options options = {.tp = 1, .engine = KGEN_ENGINE_SGLANG};
    kgen_plan plan;
    kgen_error err;
    (void)state;
    assert_int_equal(plan_model(&plan, "Qwen3.5-35B-A3B", &options, &err), KGEN_OK);
    assert_int_equal(plan.items[0].spec.attn.page, 1);
    kgen_plan_free(&plan);
    options.page = 64;
    options.layout = KGEN_LAYOUT_HND;
    assert_int_equal(plan_model(&plan, "Qwen3.5-35B-A3B", &options, &err), KGEN_OK);
    assert_int_equal(plan.items[0].spec.attn.page, 64);
    assert_int_equal(plan.items[0].spec.attn.layout, KGEN_LAYOUT_HND);
    kgen_plan_free(&plan);
}

/* ---- Gated DeltaNet and KDA ----------------------------------------------- */

/* Every width and draft that the engines offer has a kernel on every target. */
static void check_resolves(const char *model, const kgen_plan *plan, int width) {
    size_t gdn = 0;
    for (size_t i = 0; i < plan->count; i++) {
        gdn += plan->items[i].spec.family == KGEN_FAMILY_GDN;
        for (size_t t = 0; t < kgen_target_count(); t++) {
            kgen_spec spec;
            kgen_error err;
            const kgen_target *target = kgen_target_at(t);
            if (kgen_spec_resolve(&spec, &plan->items[i].spec, target, &err) != KGEN_OK)
                fail_msg("%s on %s: %s", model, target->name, err.text);
        }
    }
    assert_int_equal(gdn, width ? 2 : 1);
    assert_int_equal(layer_kernels(plan), 2 * gdn);
}

static void test_gdn_grid(void **state) {
    static const char *const models[] = {"Qwen3-Next-80B-A3B-Instruct", "Qwen3.5-27B",
                                         "Qwen3.5-35B-A3B", "Qwen3.5-397B-A17B"};
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++)
        for (int at = 0; at < 4 * 2 * 8; at++) {
            const kgen_plan_options options = {
                .tp = 1 << (at & 3), .engine = (kgen_engine)(at >> 2 & 1), .spec_width = at >> 3};
            kgen_plan plan;
            kgen_error err;
            if (plan_model(&plan, models[m], &options, &err) != KGEN_OK)
                fail_msg("%s: %s", models[m], err.text);
            check_resolves(models[m], &plan, options.spec_width);
            kgen_plan_free(&plan);
        }
}

/* What an engine launches around the cache: the pages, types and dims of attention. */
static void test_cache_kernels(void **state) {
    static const struct {
        const char *model;
        kgen_plan_options options;
        struct {
            const char *line;
            int layers, kv_heads;
        } items[4];
    } plans_of[] = {
        {"Llama-3.1-70B-Instruct",
         {.tp = 8, .kv_dtype = KGEN_DTYPE_FP8, .spec_width = 3},
         {{"kv_write:x=bf16,kv=fp8,d=128,page=16,layout=nhd", 80, 1},
          {"kv_gather:kv=fp8,o=bf16,d=128,page=16,layout=nhd", 80, 1}}},
        {"Qwen3.5-35B-A3B",
         {.tp = 2, .layout = KGEN_LAYOUT_SHUFFLE},
         {{"kv_write:x=bf16,kv=bf16,d=256,page=1056,layout=shuffle", 10, 1},
          {"kv_gather:kv=bf16,o=bf16,d=256,page=1056,layout=shuffle", 10, 1}}},
        {"gemma-3-27b-it",
         {.tp = 1},
         {{"kv_write:x=bf16,kv=bf16,d=128,page=16,layout=nhd", 62, 16},
          {"kv_gather:kv=bf16,o=bf16,d=128,page=16,layout=nhd", 10, 16},
          {"kv_gather:kv=bf16,o=bf16,d=128,page=16,layout=nhd,from=end", 52, 16}}},
        {"gpt-oss-120b",
         {.tp = 4, .engine = KGEN_ENGINE_SGLANG, .kv_dtype = KGEN_DTYPE_FP8},
         {{"kv_write:x=bf16,kv=fp8,d=64,page=1,layout=nhd", 18, 2},
          {"kv_write:x=bf16,kv=fp8,d=64,page=1,layout=nhd,remap=i64", 18, 2}}},
        {"Kimi-Linear-48B-A3B-Instruct",
         {.tp = 1},
         {{"kv_write:x=bf16,kv=bf16,d=64,dv=512,page=x16,layout=nhd", 7, 1},
          {"kv_gather:kv=bf16,o=bf16,d=64,dv=512,page=x16,layout=nhd", 7, 1}}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof plans_of / sizeof plans_of[0]; i++) {
        kgen_plan plan;
        kgen_error err;
        assert_int_equal(plan_model(&plan, plans_of[i].model, &plans_of[i].options, &err), KGEN_OK);
        size_t first = first_cache(&plan), count = 0;
        for (; plans_of[i].items[count].line; count++) {
            char line[KGEN_SPEC_LINE_MAX];
            const kgen_plan_item *item = &plan.items[first + count];
            kgen_spec_print(line, &item->spec);
            assert_string_equal(line, plans_of[i].items[count].line);
            assert_int_equal(item->layers, plans_of[i].items[count].layers);
            assert_int_equal(item->kv_heads, plans_of[i].items[count].kv_heads);
            assert_int_equal(item->q_heads, 0);
            assert_true(strstr(item->note, "cache") || strstr(item->note, "pool"));
        }
        assert_int_equal(first_metadata(&plan), first + count);
        kgen_plan_free(&plan);
    }
}

/* What prompts need: over pages, without them, in pieces that are merged. */
static const struct {
    const char *model;
    kgen_plan_options options;
    struct {
        const char *line;
        int layers, q_heads, kv_heads;
    } items[8];
} prompt_plans[] = {
    {"Llama-3.1-70B-Instruct",
     {.tp = 8, .kv_dtype = KGEN_DTYPE_FP8, .table = KGEN_DTYPE_I64},
     {{"attn:phase=extend,q=bf16,kv=fp8,d=128,g=8,page=16,layout=nhd,table=i64", 80, 8, 1},
      {"attn:phase=prefill,q=bf16,kv=bf16,d=128,g=8,page=1,layout=nhd", 80, 8, 1},
      {"attn:phase=prefill,q=bf16,kv=bf16,d=128,g=8,page=1,layout=nhd,lse=1", 80, 8, 1},
      {"attn:phase=prefill,q=bf16,kv=bf16,d=128,g=8,page=1,layout=nhd,causal=0,lse=1", 80, 8, 1},
      {"attn_merge:x=bf16,d=128", 80, 0, 8}}},
    /* sinks are in one piece; sliding layers gather their window */
    {"gpt-oss-120b",
     {.tp = 1, .layout = KGEN_LAYOUT_SHUFFLE},
     {{"attn:phase=extend,q=bf16,kv=bf16,d=64,g=8,page=16,layout=shuffle,sinks=1", 18, 64, 8},
      {"attn:phase=prefill,q=bf16,kv=bf16,d=64,g=8,page=1,layout=nhd,sinks=1", 18, 64, 8},
      {"attn:phase=prefill,q=bf16,kv=bf16,d=64,g=8,page=1,layout=nhd,sinks=1,lse=1", 18, 64, 8},
      {"attn:phase=prefill,q=bf16,kv=bf16,d=64,g=8,page=1,layout=nhd,causal=0,lse=1", 18, 64, 8},
      {"attn_merge:x=bf16,d=64", 18, 0, 64},
      {"attn:phase=extend,q=bf16,kv=bf16,d=64,g=8,page=16,layout=shuffle,window=128,sinks=1", 18,
       64, 8},
      {"attn:phase=prefill,q=bf16,kv=bf16,d=64,g=8,page=1,layout=nhd,window=128,sinks=1", 18, 64,
       8}}},
    {"gpt-oss-120b",
     {.tp = 8, .engine = KGEN_ENGINE_SGLANG},
     {{"attn:phase=extend,q=bf16,kv=bf16,d=64,g=8,page=1,layout=nhd,sinks=1", 18, 8, 1},
      {"attn:phase=extend,q=bf16,kv=bf16,d=64,g=8,page=1,layout=nhd,window=128,sinks=1", 18, 8,
       1}}},
    /* slopes begin at the wrong key in a chunk */
    {"Llama-3.1-8B-Instruct",
     {.tp = 1, .alibi = 1},
     {{"attn:phase=extend,q=bf16,kv=bf16,d=128,g=4,page=16,layout=nhd,alibi=1", 32, 32, 8},
      {"attn:phase=prefill,q=bf16,kv=bf16,d=128,g=4,page=1,layout=nhd,alibi=1", 32, 32, 8}}},
    {"Llama-3.1-8B-Instruct",
     {.tp = 1, .prompts = KGEN_PROMPTS_EXTEND},
     {{"attn:phase=extend,q=bf16,kv=bf16,d=128,g=4,page=16,layout=nhd", 32, 32, 8}}},
    {"Llama-3.1-8B-Instruct", {.tp = 1, .prompts = KGEN_PROMPTS_NONE}, {{NULL, 0, 0, 0}}},
    /* a prefix in common: layers that see it whole, a step's phases behind the prompts */
    {"gpt-oss-120b",
     {.tp = 8, .engine = KGEN_ENGINE_SGLANG, .spec_width = 2, .cascade = 1},
     {{"attn:phase=extend,q=bf16,kv=bf16,d=64,g=8,page=1,layout=nhd,sinks=1", 18, 8, 1},
      {"attn:phase=extend,q=bf16,kv=bf16,d=64,g=8,page=1,layout=nhd,window=128,sinks=1", 18, 8, 1},
      {"attn:phase=decode,q=bf16,kv=bf16,d=64,g=8,page=1,layout=nhd,sinks=1,cascade=1", 18, 8, 1},
      {"attn:phase=verify,q=bf16,kv=bf16,d=64,g=8,t=3,page=1,layout=nhd,sinks=1,cascade=1", 18, 8,
       1},
      {"attn:phase=extend,q=bf16,kv=bf16,d=64,g=8,page=1,layout=nhd,sinks=1,cascade=1", 18, 8, 1}}},
    {"Llama-3.1-8B-Instruct",
     {.tp = 1, .prompts = KGEN_PROMPTS_NONE, .cascade = 1},
     {{"attn:phase=decode,q=bf16,kv=bf16,d=128,g=4,page=16,layout=nhd,cascade=1", 32, 32, 8}}},
    {"Kimi-Linear-48B-A3B-Instruct",
     {.tp = 1},
     {{"attn:phase=prefill,q=bf16,kv=bf16,d=192,dv=128,g=1,page=1,layout=nhd", 7, 32, 32},
      {"attn:phase=prefill,q=bf16,kv=bf16,d=192,dv=128,g=1,page=1,layout=nhd,lse=1", 7, 32, 32},
      {"attn:phase=prefill,q=bf16,kv=bf16,d=192,dv=128,g=1,page=1,layout=nhd,causal=0,lse=1", 7, 32,
       32},
      {"attn_merge:x=bf16,d=128", 7, 0, 32}}},
};

static void test_prompt_kernels(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof prompt_plans / sizeof prompt_plans[0]; i++) {
        kgen_plan plan;
        kgen_error err;
        assert_int_equal(plan_model(&plan, prompt_plans[i].model, &prompt_plans[i].options, &err),
                         KGEN_OK);
        size_t first = layer_kernels(&plan), count = 0;
        for (; count < 8 && prompt_plans[i].items[count].line; count++) {
            char line[KGEN_SPEC_LINE_MAX];
            const kgen_plan_item *item = &plan.items[first + count];
            kgen_spec_print(line, &item->spec);
            assert_string_equal(line, prompt_plans[i].items[count].line);
            assert_int_equal(item->layers, prompt_plans[i].items[count].layers);
            assert_int_equal(item->q_heads, prompt_plans[i].items[count].q_heads);
            assert_int_equal(item->kv_heads, prompt_plans[i].items[count].kv_heads);
            assert_true((item->scale > 0) == (item->spec.family == KGEN_FAMILY_ATTN));
            assert_true(item->note[0]);
        }
        assert_int_equal(first_cache(&plan), first + count);
        int gathers = 0, dense = strstr(prompt_plans[i].model, "Kimi") == NULL;
        for (size_t n = 0; n < plan.count; n++)
            gathers |= plan.items[n].spec.family == KGEN_FAMILY_KV_GATHER;
        if (prompt_plans[i].options.prompts) assert_false(gathers);
        if (dense) assert_int_equal(plan.unsupported_count, 0); /* nothing is missing */
        kgen_plan_free(&plan);
    }
}

/* A cache that only attention takes is said; attention stays. */
static void test_cache_refusals(void **state) {
    const kgen_plan_options options = {.tp = 1, .kv_dtype = KGEN_DTYPE_FP16};
    kgen_plan plan;
    kgen_error err;
    (void)state;
    assert_int_equal(plan_model(&plan, "Llama-3.1-8B-Instruct", &options, &err), KGEN_OK);
    assert_int_equal(first_metadata(&plan), first_cache(&plan));
    assert_int_equal(plan.count, first_metadata(&plan) + 1);
    assert_true(mentions(&plan, "32 layers (new keys and values into the cache): kv=fp16: x=bf16"));
    assert_true(mentions(&plan, "out of the cache): kv=fp16: o=bf16"));
    kgen_plan_free(&plan);
}

/* The metadata kernels of an engine, with the plan's page and the model's windows. */
static void test_metadata(void **state) {
    static const struct {
        const char *model;
        kgen_plan_options options;
        const char *lines[11];
    } plans_of[] = {
        {"Qwen3.5-35B-A3B",
         {.tp = 1, .engine = KGEN_ENGINE_SGLANG, .spec_width = 3},
         {"scatter:op=page_table_requests", "scatter:op=page_table_ragged",
          "scatter:op=spec_prepare", "scatter:op=spec_prepare,delta=1",
          "scatter:op=draft_page_table", "scatter:op=draft_lens",
          "scatter:op=cache_locs,form=draft", "scatter:op=assign_locs,form=ragged",
          "scatter:op=bonus_tokens", "scatter:op=accept_locs"}},
        {"gemma-2-27b-it",
         {.tp = 1, .engine = KGEN_ENGINE_SGLANG, .page = 64, .spec_width = 1},
         {"scatter:op=page_table_requests,page=64,swa=1",
          "scatter:op=page_table_ragged,page=64,swa=1", "scatter:op=spec_prepare,page=64,swa=1",
          "scatter:op=spec_prepare,page=64,swa=1,delta=1", "scatter:op=draft_page_table,page=64",
          "scatter:op=draft_lens", "scatter:op=cache_locs,page=64,form=draft",
          "scatter:op=assign_locs,form=ragged", "scatter:op=bonus_tokens",
          "scatter:op=accept_locs"}},
        /* without a draft: what every decode step has */
        {"gemma-2-27b-it",
         {.tp = 1, .engine = KGEN_ENGINE_SGLANG, .table = KGEN_DTYPE_I64},
         {"scatter:op=page_table_requests,swa=1,table=i64",
          "scatter:op=page_table_ragged,swa=1,table=i64"}},
        {"Llama-3.1-8B-Instruct",
         {.tp = 1, .table = KGEN_DTYPE_I64},
         {"scatter:op=slot_mapping,page=16,slot=i64"}},
        {"Llama-3.1-8B-Instruct",
         {.tp = 1, .spec_width = 2},
         {"scatter:op=slot_mapping,page=16", "scatter:op=eagle_step,page=16",
          "scatter:op=padded_inputs", "scatter:op=next_token,token=i32", "scatter:op=draft_lens"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof plans_of / sizeof plans_of[0]; i++) {
        kgen_plan plan;
        kgen_error err;
        assert_int_equal(plan_model(&plan, plans_of[i].model, &plans_of[i].options, &err), KGEN_OK);
        size_t first = first_metadata(&plan), count = 0;
        for (; plans_of[i].lines[count]; count++) {
            char line[KGEN_SPEC_LINE_MAX];
            const kgen_plan_item *item = &plan.items[first + count];
            kgen_spec_print(line, &item->spec);
            assert_string_equal(line, plans_of[i].lines[count]);
            assert_int_equal(item->layers, 0);
            assert_true(strncmp(item->note, "metadata: ", 10) == 0);
        }
        assert_int_equal(plan.count, first + count);
        kgen_plan_free(&plan);
    }
}

/* A page that the metadata kernels do not take is said; the layers stay. */
static void test_metadata_page(void **state) {
    const kgen_plan_options options = {.tp = 1, .page = 8192, .spec_width = 2};
    kgen_plan plan;
    kgen_error err;
    (void)state;
    assert_int_equal(plan_model(&plan, "Llama-3.1-8B-Instruct", &options, &err), KGEN_OK);
    assert_int_equal(layer_kernels(&plan), 2);
    assert_true(mentions(&plan, "page=8192: out of bounds"));
    kgen_plan_free(&plan);
}

/* What kernels take of pages, plans take. */
static void test_small_pages(void **state) {
    (void)state;
    for (int page = 1; page <= 16; page *= 2) {
        const kgen_plan_options options = {.tp = 1, .page = page, .spec_width = 2};
        kgen_plan plan;
        kgen_error err;
        assert_int_equal(plan_model(&plan, "Llama-3.1-8B-Instruct", &options, &err), KGEN_OK);
        assert_int_equal(plan.items[0].spec.attn.page, page);
        kgen_plan_free(&plan);
    }
}

/* The longest drafts of a plan fit one kernel. */
static void test_gdn_long_drafts(void **state) {
    const kgen_plan_options options = {.tp = 1, .spec_width = 15};
    kgen_plan plan;
    kgen_error err;
    int verifies = 0;
    (void)state;
    assert_int_equal(plan_model(&plan, "Qwen3.5-35B-A3B", &options, &err), KGEN_OK);
    assert_int_equal(layer_kernels(&plan), 4);
    for (size_t i = 0; i < plan.count; i++)
        verifies +=
            plan.items[i].spec.family == KGEN_FAMILY_GDN && plan.items[i].spec.gdn.tokens == 16;
    assert_int_equal(verifies, 1);
    kgen_plan_free(&plan);
}

#define QWEN                                                                             \
    "{\"model_type\":\"qwen3_next\",\"num_hidden_layers\":4,\"num_attention_heads\":8,"  \
    "\"num_key_value_heads\":2,\"linear_num_key_heads\":4,\"linear_num_value_heads\":8," \
    "\"linear_key_head_dim\":128,\"linear_value_head_dim\":64,\"linear_conv_kernel_dim\":3"
#define KIMI(layers)                                                               \
    "{\"model_type\":\"kimi_k3\",\"text_config\":{\"model_type\":\"kimi_linear\"," \
    "\"num_hidden_layers\":4,\"num_attention_heads\":8,\"hidden_size\":512,"       \
    "\"kv_lora_rank\":64,\"hidden_act\":\"situ\",\"linear_attn_config\":{"         \
    "\"num_heads\":6,\"head_dim\":128,\"short_conv_kernel_size\":4,"               \
    "\"gate_lower_bound\":-5.0,\"kda_layers\":" layers "}}}"

static void expect_line(const char *json, int tp, const char *line) {
    const kgen_plan_options options = {.tp = tp};
    char got[KGEN_SPEC_LINE_MAX];
    kgen_plan plan;
    kgen_error err;
    if (plan_text(&plan, json, &options, &err) != KGEN_OK) fail_msg("%s", err.text);
    kgen_spec_print(got, &plan.items[layer_kernels(&plan) - 1].spec);
    assert_string_equal(got, line);
    kgen_plan_free(&plan);
}

/* What the config says is in the line. */
static void test_gdn_fields(void **state) {
    kgen_plan plan;
    kgen_error err;
    (void)state;
    expect_line(QWEN "}", 2,
                "gdn:fuse=e,layout=interleaved,x=bf16,hk=2,hv=4,dv=64,state=bf16,sl=vk,w=3,"
                "pad=nonpos");
    expect_line(QWEN ",\"mamba_ssm_dtype\":\"float16\",\"hidden_act\":\"swish\","
                     "\"output_gate_type\":\"sigmoid\",\"torch_dtype\":\"float16\"}",
                1,
                "gdn:fuse=e,layout=interleaved,x=fp16,hk=4,hv=8,dv=64,state=fp16,sl=vk,w=3,"
                "ogate=sigmoid,pad=nonpos");
    expect_line(KIMI("[1,3]"), 3,
                "gdn:fuse=e,layout=presplit,x=bf16,hk=2,hv=2,state=f32,sl=vk,cw=f32,"
                "gate=kda_bound,dt=f32,ogate=sigmoid,pad=nonpos");
    assert_int_equal(plan_text(&plan, KIMI("[1,3]"), NULL, &err), KGEN_OK);
    assert_true(plan.items[0].lower_bound == -5 && plan.items[0].layers == 2);
    assert_true(mentions(&plan, "2 of 4 layers are multi-head latent attention"));
    kgen_plan_free(&plan);
}

static void expect_failure(const char *json, const kgen_plan_options *options, kgen_status status,
                           const char *words);

static void test_gdn_refusals(void **state) {
    static const struct {
        const char *json, *words;
        kgen_plan_options options;
    } rows[] = {
        {QWEN "}", "linear_num_key_heads=4: not divisible by tp=8", {.tp = 8}},
        {QWEN ",\"output_gate_type\":\"tanh\"}", "output_gate_type=tanh", {.tp = 1}},
        {QWEN ",\"rms_norm_eps\":-1}", "rms_norm_eps=-1: must be 0 to 1", {.tp = 1}},
        {QWEN ",\"mamba_ssm_dtype\":\"int8\"}", "mamba_ssm_dtype=int8", {.tp = 1}},
        {KIMI("[1,2]"), "linear_attn_config.num_heads=6: not divisible by tp=4", {.tp = 4}},
        {KIMI("[1,2,2]"), "kda_layers[2]: a layer from 1 to 4, once", {.tp = 1}},
        {KIMI("[0]"), "kda_layers[0]", {.tp = 1}},
        {KIMI("[5]"), "kda_layers[0]", {.tp = 1}},
        {KIMI("[\"1\"]"), "kda_layers[0]", {.tp = 1}},
        {KIMI("7"), "kda_layers: a list expected", {.tp = 1}},
        {"{\"model_type\":\"kimi_linear\",\"num_hidden_layers\":2,\"num_attention_heads\":8,"
         "\"head_dim\":64,\"linear_attn_config\":{\"kda_layers\":[1]}}",
         "linear_attn_config.num_heads: missing",
         {.tp = 1}},
        {"{\"model_type\":\"kimi_linear\",\"num_hidden_layers\":2,\"num_attention_heads\":8,"
         "\"head_dim\":64}",
         "linear_attn_config: missing",
         {.tp = 1}},
        {"{\"model_type\":\"qwen3_next\",\"num_hidden_layers\":4,\"num_attention_heads\":8}",
         "linear_num_key_heads: missing",
         {.tp = 1, .page = 16}},
    };
    kgen_plan plan;
    kgen_error err;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_failure(rows[i].json, &rows[i].options, KGEN_E_CONFIG, rows[i].words);
    assert_int_equal(plan_text(&plan, QWEN ",\"hidden_act\":\"gelu\"}", NULL, &err), KGEN_OK);
    assert_true(mentions(&plan, "hidden_act=gelu"));
    assert_int_equal(layer_kernels(&plan), 1);
    kgen_plan_free(&plan);
}

/* ---- refusals ------------------------------------------------------------ */

static void expect_failure(const char *json, const kgen_plan_options *options, kgen_status status,
                           const char *words) {
    kgen_plan plan;
    kgen_error err;
    kgen_status got = plan_text(&plan, json, options, &err);
    if (got != status || !strstr(err.text, words))
        fail_msg("%.80s: %s '%s', wanted %s '%s'", json, kgen_status_name(got), err.text,
                 kgen_status_name(status), words);
    assert_null(plan.items);
    assert_null(plan.unsupported);
    assert_null(strchr(err.text, '\n'));
}

/* Widths, heads of a rank and the scale with YaRN's factor: of the unabsorbed heads. */
static void test_latent_fields(void **state) {
    static const struct {
        const char *json, *line;
        double scale;
    } rows[] = {
        {"{\"model_type\":\"kimi_k2\",\"num_hidden_layers\":61,\"hidden_size\":7168,"
         "\"num_attention_heads\":64,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,"
         "\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"q_lora_rank\":1536,\"rope_scaling\":"
         "{\"type\":\"yarn\",\"factor\":32.0,\"mscale\":1.0,\"mscale_all_dim\":1.0}}",
         "mla:phase=decode,q=bf16,kv=bf16,l=512,r=64,h=16,page=16",
         1.3465735902799727 * 1.3465735902799727 / 13.856406460551018},
        {"{\"model_type\":\"glm4_moe_lite\",\"num_hidden_layers\":47,\"hidden_size\":2048,"
         "\"num_attention_heads\":20,\"kv_lora_rank\":512,\"qk_nope_head_dim\":192,"
         "\"qk_rope_head_dim\":64,\"v_head_dim\":256,\"q_lora_rank\":768,\"rope_scaling\":null}",
         "mla:phase=decode,q=bf16,kv=bf16,l=512,r=64,h=5,page=16", 1.0 / 16},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const kgen_plan_options options = {.tp = 4};
        char line[KGEN_SPEC_LINE_MAX];
        kgen_plan plan;
        kgen_error err;
        if (plan_text(&plan, rows[i].json, &options, &err) != KGEN_OK) fail_msg("%s", err.text);
        kgen_spec_print(line, &plan.items[0].spec);
        assert_string_equal(line, rows[i].line);
        assert_true(fabs(plan.items[0].scale - rows[i].scale) < 1e-9);
        kgen_plan_free(&plan);
    }
}

/* The indexer of sparse latent attention: whole on every rank, a step's and a draft's tokens,
 * prompts where the engine has them. Nothing is missing, but without its sizes it is. */
static void test_indexer(void **state) {
    static const char config[] = "../../tests/configs/DeepSeek-V3.2";
    static const struct {
        kgen_plan_options options;
        const char *lines[9];
    } rows[] = {
        {{.tp = 8, .kv_dtype = KGEN_DTYPE_FP8, .page = 64, .table = KGEN_DTYPE_I64},
         {"indexer:op=write", "indexer:op=decode,clean=0,table=i64",
          "indexer:op=topk,to=slot,table=i64", "indexer:op=gather,table=i64",
          "indexer:op=prefill,clean=0", "indexer:op=topk,ranges=1,to=slot,table=i64"}},
        {{.tp = 2,
          .engine = KGEN_ENGINE_SGLANG,
          .spec_width = 3,
          .prompts = KGEN_PROMPTS_NONE,
          .x = KGEN_DTYPE_FP16},
         {"indexer:op=write,x=fp16,page=1", "indexer:op=decode,page=1,clean=0",
          "indexer:op=topk,page=1,to=slot", "indexer:op=decode,t=4,page=1,clean=0",
          "indexer:op=topk,t=4,page=1,to=slot"}},
    };
    kgen_plan plan;
    kgen_error err;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t found = 0;
        if (plan_model(&plan, config, &rows[i].options, &err) != KGEN_OK) fail_msg("%s", err.text);
        for (size_t n = 0; n < plan.count; n++) {
            char line[KGEN_SPEC_LINE_MAX];
            if (plan.items[n].spec.family != KGEN_FAMILY_INDEXER) continue;
            kgen_spec_print(line, &plan.items[n].spec);
            assert_true(found < 9 && rows[i].lines[found]);
            assert_string_equal(line, rows[i].lines[found++]);
            assert_int_equal(plan.items[n].layers, 61);
        }
        assert_null(rows[i].lines[found]);
        assert_int_equal(plan.unsupported_count, 0);
        kgen_plan_free(&plan);
    }
    static const char *const sizes[] = {"", ",\"index_n_heads\":64",
                                        ",\"index_n_heads\":64,\"index_head_dim\":96"};
    static const char *const says[] = {"index_n_heads is missing", "index_head_dim is missing",
                                       "d=96: out of bounds"};
    for (int i = 0; i < 3; i++) {
        char json[512];
        snprintf(json, sizeof json,
                 "{\"model_type\":\"deepseek_v32\",\"num_hidden_layers\":61,"
                 "\"num_attention_heads\":128,\"hidden_size\":7168,\"kv_lora_rank\":512,"
                 "\"qk_nope_head_dim\":128,\"v_head_dim\":128,\"qk_rope_head_dim\":64,"
                 "\"index_topk\":2048%s}",
                 sizes[i]);
        if (plan_text(&plan, json, NULL, &err) != KGEN_OK) fail_msg("%s", err.text);
        if (!mentions(&plan, says[i])) fail_msg("%s: nobody says %s", json, says[i]);
        kgen_plan_free(&plan);
    }
}

/* Without the width of its rope part, or with an indexer that picks the keys. */
static void test_mla_is_refused(void **state) {
    const kgen_plan_options options = {.tp = 8};
    (void)state;
    expect_failure("{\"model_type\":\"deepseek_v3\",\"num_hidden_layers\":61,"
                   "\"num_attention_heads\":128,\"hidden_size\":7168,\"kv_lora_rank\":512}",
                   &options, KGEN_E_UNSUPPORTED,
                   "61 of 61 layers are multi-head latent attention (kv_lora_rank=512)");
    expect_failure("{\"model_type\":\"deepseek_v32\",\"num_hidden_layers\":61,"
                   "\"num_attention_heads\":128,\"hidden_size\":7168,\"kv_lora_rank\":512,"
                   "\"qk_rope_head_dim\":64}",
                   &options, KGEN_E_UNSUPPORTED, "61 of 61 layers are sparse attention");
}

static void test_indivisible_heads(void **state) {
    const kgen_plan_options three = {.tp = 3}, five = {.tp = 5};
    (void)state;
    expect_failure("{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"num_attention_heads\":32,"
                   "\"num_key_value_heads\":8,\"head_dim\":128}",
                   &three, KGEN_E_CONFIG, "num_attention_heads=32: not divisible by tp=3");
    expect_failure("{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"num_attention_heads\":40,"
                   "\"num_key_value_heads\":8,\"head_dim\":128}",
                   &five, KGEN_E_CONFIG, "num_key_value_heads=8");
}

#define HEAD "{\"model_type\":\"llama\",\"num_hidden_layers\":2,"

static const struct {
    const char *json;
    kgen_status status;
    const char *words;
} bad_configs[] = {
    {"", KGEN_E_CONFIG, "not valid JSON"},
    {"[]", KGEN_E_CONFIG, "an object expected"},
    {"3", KGEN_E_CONFIG, "not valid JSON"},
    {"{", KGEN_E_CONFIG, "not valid JSON: line 1"},
    {"{}", KGEN_E_CONFIG, "model_type: missing"},
    {"{\"model_type\":7}", KGEN_E_CONFIG, "model_type: a name"},
    {"{\"model_type\":\"\\u001b[31m\"}", KGEN_E_CONFIG, "model_type: a name"},
    {"{\"text_config\":[]}", KGEN_E_CONFIG, "text_config: an object"},
    {"{\"model_type\":\"llama\"}", KGEN_E_CONFIG, "num_hidden_layers: missing"},
    {HEAD "\"head_dim\":128}", KGEN_E_CONFIG, "num_attention_heads: missing"},
    {HEAD "\"num_attention_heads\":8}", KGEN_E_CONFIG, "hidden_size: missing"},
    {HEAD "\"num_attention_heads\":7,\"hidden_size\":128}", KGEN_E_CONFIG, "hidden_size=128"},
    {HEAD "\"num_attention_heads\":-8}", KGEN_E_CONFIG, "num_attention_heads=-8: must be 1"},
    {HEAD "\"num_attention_heads\":1000000}", KGEN_E_CONFIG, "must be 1 to 1024"},
    {HEAD "\"num_attention_heads\":99999999999999999999}", KGEN_E_CONFIG, "not valid JSON"},
    {HEAD "\"num_attention_heads\":8.5}", KGEN_E_CONFIG, "an integer expected"},
    {HEAD "\"num_attention_heads\":\"8\"}", KGEN_E_CONFIG, "an integer expected"},
    {HEAD "\"num_attention_heads\":NaN}", KGEN_E_CONFIG, "not valid JSON"},
    {HEAD "\"num_attention_heads\":8,\"num_attention_heads\":8}", KGEN_E_CONFIG, "duplicate"},
    {HEAD "\"num_attention_heads\":12,\"num_key_value_heads\":5,\"head_dim\":64}", KGEN_E_CONFIG,
     "num_key_value_heads=5"},
    {HEAD "\"num_attention_heads\":8,\"head_dim\":64,\"torch_dtype\":\"int8\"}", KGEN_E_CONFIG,
     "torch_dtype=int8"},
    {HEAD "\"num_attention_heads\":8,\"head_dim\":100}", KGEN_E_UNSUPPORTED, "d=100"},
    {HEAD "\"num_attention_heads\":8,\"head_dim\":64,\"layer_types\":[\"full_attention\"]}",
     KGEN_E_CONFIG, "layer_types: 1 entries, num_hidden_layers=2"},
    {HEAD "\"num_attention_heads\":8,\"head_dim\":64,\"layer_types\":{}}", KGEN_E_CONFIG,
     "layer_types: a list"},
    {HEAD "\"num_attention_heads\":8,\"head_dim\":64,\"layer_types\":[1,2]}", KGEN_E_CONFIG,
     "layer_types[0]"},
    {HEAD "\"num_attention_heads\":8,\"head_dim\":64,\"layer_types\":[\"conv\",\"conv\"]}",
     KGEN_E_UNSUPPORTED, "conv"},
    {HEAD "\"num_attention_heads\":8,\"head_dim\":64,"
          "\"layer_types\":[\"sliding_attention\",\"full_attention\"]}",
     KGEN_E_CONFIG, "sliding_window: missing"},
    {HEAD "\"num_attention_heads\":8,\"head_dim\":64,"
          "\"layer_types\":[\"linear_attention\",\"full_attention\"]}",
     KGEN_E_UNSUPPORTED, "layer_types[0]=linear_attention"},
    {HEAD "\"num_attention_heads\":8,\"n_head\":4,\"head_dim\":64}", KGEN_E_CONFIG,
     "num_attention_heads=8, n_head=4: must be equal"},
    {HEAD "\"num_attention_heads\":8,\"head_dim\":-Infinity}", KGEN_E_CONFIG,
     "an integer expected"},
    {"{\"model_type\":\"jamba\",\"num_hidden_layers\":8,\"num_attention_heads\":8,"
     "\"head_dim\":64}",
     KGEN_E_CONFIG, "missing, and the model has Mamba layers"},
    {"{\"model_type\":\"nemotron_h\",\"num_hidden_layers\":3,\"num_attention_heads\":8,"
     "\"hybrid_override_pattern\":\"M*\"}",
     KGEN_E_CONFIG, "hybrid_override_pattern: 2 layers, num_hidden_layers=3"},
    {"{\"model_type\":\"nemotron_h\",\"num_hidden_layers\":2,\"num_attention_heads\":8,"
     "\"hybrid_override_pattern\":\"MX\"}",
     KGEN_E_UNSUPPORTED, "hybrid_override_pattern: layer 1 is of a kind"},
    {"{\"model_type\":\"minimax_m1\",\"num_hidden_layers\":2,\"num_attention_heads\":8,"
     "\"attn_type_list\":[1,2]}",
     KGEN_E_CONFIG, "attn_type_list[1]: 0 or 1 expected"},
    {"{\"model_type\":\"gemma2\",\"num_hidden_layers\":2,\"num_attention_heads\":8,"
     "\"query_pre_attn_scalar\":-1}",
     KGEN_E_CONFIG, "query_pre_attn_scalar=-1"},
};

static void test_bad_configs(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_configs / sizeof bad_configs[0]; i++)
        expect_failure(bad_configs[i].json, NULL, bad_configs[i].status, bad_configs[i].words);
}

static void test_bad_options(void **state) {
    static const struct {
        kgen_plan_options options;
        const char *words;
    } rows[] = {
        {{.tp = 0}, "tp=0"},
        {{.tp = 5000}, "tp=5000"},
        {{.tp = 1, .page = 17}, "page=17: must be 1, 2, 4, 8 or a multiple of 16; nearest is 16"},
        {{.tp = 1, .page = -16}, "page=-16"},
        {{.tp = 1, .spec_width = 16}, "spec_width=16: must be 0 to 15"},
        {{.tp = 1, .kv_dtype = KGEN_DTYPE_I32}, "kv_dtype=i32"},
        {{.tp = 1, .engine = (kgen_engine)9}, "engine=9"},
        {{.tp = 1, .layout = (kgen_layout)9}, "layout=9"},
        {{.tp = 1, .x = KGEN_DTYPE_FP8}, "x=fp8: must be bf16 or fp16"},
        {{.tp = 1, .state = KGEN_DTYPE_FP8}, "state=fp8: must be bf16, fp16 or f32"},
        {{.tp = 1, .table = KGEN_DTYPE_BF16}, "table=bf16: must be i32 or i64"},
        {{.tp = 1, .descale = KGEN_DESCALE_ROW}, "descale=4: must be head or token"},
        {{.tp = 1, .prompts = (kgen_prompts)3}, "prompts=3: must be engine, extend or none"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_failure(HEAD "\"num_attention_heads\":8,\"head_dim\":64}", &rows[i].options,
                       KGEN_E_ARG, rows[i].words);
}

/* Fields that spell out a mechanism, beside fields that are off or of no matter. */
static void test_unread_fields(void **state) {
    static const char *const telling[] = {
        "\"hybrid_override_pattern\":\"M*\"",
        "\"attn_type_list\":[0,1]",
        "\"attn_layer_period\":8",
        "\"layers_block_type\":[\"mamba\",\"attention\"]",
        "\"cross_attention_layers\":[1]",
        "\"block_configs\":[{},{}]",
        "\"hybrid_layer_pattern\":[0,1]",
        "\"swa_num_key_value_heads\":2",
        "\"sliding_window_pattern\":4",
        "\"no_rope_layers\":[1,0]",
        "\"use_cla\":true",
        "\"index_topk\":2048",
        "\"attention_multiplier\":0.5",
        "\"query_pre_attn_scalar\":256",
        "\"num_kv_groups\":2",
        "\"layer_types\":[\"full_attention\",\"novel_attention\"]",
        "\"sliding_window\":512",
        "\"is_causal\":false",
        "\"multi_query\":true",
        "\"use_mla\":true"};
    static const char *const passed[] = {"\"sliding_window\":null",
                                         "\"attention_bias\":true",
                                         "\"attention_dropout\":0.1",
                                         "\"is_causal\":true",
                                         "\"swa_num_key_value_heads\":null",
                                         "\"use_cla\":false",
                                         "\"index_topk\":0",
                                         "\"layers_block_type\":null",
                                         "\"time_step_limit\":[0.0,Infinity]",
                                         "\"attn_logit_softcapping\":null",
                                         "\"layer_types\":[\"full_attention\",\"attention\"]",
                                         "\"note\":\"\\\"Infinity\\\" and \\\\\""};
    char json[512];
    kgen_plan plan;
    kgen_error err;
    (void)state;
    for (size_t i = 0; i < sizeof telling / sizeof telling[0]; i++) {
        char field[64];
        snprintf(json, sizeof json, HEAD "\"num_attention_heads\":8,\"head_dim\":64,%s}",
                 telling[i]);
        snprintf(field, sizeof field, "%.*s", (int)strcspn(telling[i] + 1, "\""), telling[i] + 1);
        expect_failure(json, NULL, KGEN_E_UNSUPPORTED, field);
    }
    for (size_t i = 0; i < sizeof passed / sizeof passed[0]; i++) {
        snprintf(json, sizeof json, HEAD "\"num_attention_heads\":8,\"head_dim\":64,%s}",
                 passed[i]);
        if (plan_text(&plan, json, NULL, &err) != KGEN_OK) fail_msg("%s: %s", json, err.text);
        assert_int_equal(plan.items[0].layers, 2);
        kgen_plan_free(&plan);
    }
}

/* Refused by name, unless it is asked for. */
static void test_unknown_model_type(void **state) {
    static const char json[] = "{\"model_type\":\"novel\",\"num_hidden_layers\":2,"
                               "\"num_attention_heads\":8,\"head_dim\":64,"
                               "\"hybrid_thing\":[1,2]}";
    const kgen_plan_options dense = {.tp = 1, .dense = 1};
    kgen_plan plan;
    kgen_error err;
    (void)state;
    expect_failure(json, NULL, KGEN_E_UNSUPPORTED, "model_type=novel is not known");
    assert_int_equal(plan_text(&plan, json, &dense, &err), KGEN_OK);
    assert_true(mentions(&plan, "model_type=novel: as asked, every layer"));
    assert_true(mentions(&plan, "passed over: hybrid_thing"));
    assert_int_equal(plan.items[0].layers, 2);
    kgen_plan_free(&plan);
}

static void test_huge_and_deep(void **state) {
    kgen_plan plan;
    kgen_error err;
    size_t size = ((size_t)4 << 20) + 1;
    char *text = malloc(size);
    (void)state;
    assert_non_null(text);
    memset(text, ' ', size);
    const kgen_plan_options no_size = {.tp = 1};
    assert_int_equal(kgen_plan_make(&plan, text, size, &no_size, &err), KGEN_E_ARG);
    assert_string_equal(err.text, "kgen_plan_options.size=0: sizeof(kgen_plan_options) expected");
    assert_int_equal(kgen_plan_make(&plan, text, size, NULL, &err), KGEN_E_CONFIG);
    assert_non_null(strstr(err.text, "4194304"));
    memset(text, '[', size);
    assert_int_equal(kgen_plan_make(&plan, text, size - 1, NULL, &err), KGEN_E_CONFIG);
    assert_non_null(strstr(err.text, "not valid JSON"));
    free(text);
}

/* ---- mutations of real configs ------------------------------------------- */

static uint64_t random_state;

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static size_t below(size_t bound) { return (size_t)(next_random() % bound); }

static size_t replace_range(char *text, size_t size, size_t at, size_t cut, const char *with) {
    size_t length = strlen(with);
    if (at + cut > size) cut = size - at;
    if (size - cut + length >= TEXT_MAX) return size;
    memmove(text + at + length, text + at + cut, size - at - cut);
    memcpy(text + at, with, length);
    return size - cut + length;
}

static size_t mutate(char *text, size_t size) {
    static const char *const pieces[] = {"null",
                                         "-1",
                                         "0",
                                         "1e999",
                                         "NaN",
                                         "[[[[",
                                         "}",
                                         "\"",
                                         "{",
                                         "9223372036854775807",
                                         "true",
                                         "[]",
                                         "\\u0000",
                                         "\xff",
                                         "1024",
                                         "0.5",
                                         "\"sliding_attention\"",
                                         "4096",
                                         ","};
    size_t at = below(size);
    switch (below(4)) {
    case 0:
        text[at] = (char)next_random();
        return size;
    case 1:
        return replace_range(text, size, at, 1 + below(12), "");
    case 2: /* a value: from a colon to the end of its token */
        while (at < size && text[at] != ':') at++;
        if (at + 1 < size) {
            size_t end = at + 1;
            while (end < size && !strchr(",}]\n", text[end])) end++;
            return replace_range(text, size, at + 1, end - at - 1,
                                 pieces[below(sizeof pieces / sizeof pieces[0])]);
        }
        return size;
    default:
        return replace_range(text, size, at, below(4),
                             pieces[below(sizeof pieces / sizeof pieces[0])]);
    }
}

static void check_outcome(kgen_status status, kgen_plan *plan, const kgen_error *err) {
    if (status != KGEN_OK) {
        assert_true(status == KGEN_E_CONFIG || status == KGEN_E_UNSUPPORTED);
        assert_true(err->text[0] && !strchr(err->text, '\n'));
        assert_null(plan->items);
        return;
    }
    assert_true(plan->count > 0);
    for (size_t i = 0; i < plan->count; i++) {
        const kgen_plan_item *item = &plan->items[i];
        assert_int_equal(kgen_spec_validate(&item->spec, NULL, NULL), KGEN_OK);
        if (item->spec.family == KGEN_FAMILY_SCATTER) continue;
        assert_true(item->layers > 0);
        if (is_cache_kernel(item) || item->spec.family == KGEN_FAMILY_ATTN_MERGE) {
            assert_true(item->kv_heads > 0 && item->scale == 0);
            continue;
        }
        assert_true(item->scale > 0);
        if (item->spec.family == KGEN_FAMILY_ATTN)
            assert_int_equal(item->q_heads, item->kv_heads * item->spec.attn.group);
        else if (item->spec.family == KGEN_FAMILY_MLA)
            assert_true(item->q_heads == item->spec.mla.heads && item->kv_heads == 1);
        else
            assert_true(item->norm_eps >= 0 && item->kv_heads % item->q_heads == 0);
    }
    kgen_plan_free(plan);
}

#define MORE "../../tests/configs/"

static void test_mutations(void **state) {
    static const char *const names[] = {"DeepSeek-V3",
                                        "Llama-3.1-70B-Instruct",
                                        "Qwen3.5-35B-A3B",
                                        "Qwen3-Next-80B-A3B-Instruct",
                                        "gemma-2-27b-it",
                                        "gemma-3-27b-it",
                                        "gpt-oss-120b",
                                        "Mistral-7B-v0.1",
                                        "Kimi-Linear-48B-A3B-Instruct",
                                        MORE "MiMo-V2-Flash",
                                        MORE "Nemotron-3-Nano-30B-A3B",
                                        MORE "MiniMax-M1-40k",
                                        MORE "Jamba-v0.1",
                                        MORE "LFM2-1.2B",
                                        MORE "Bamba-9B",
                                        MORE "mpt-7b",
                                        MORE "gpt-neo-2.7B",
                                        MORE "gemma-3n-E4B",
                                        MORE "falcon-40b",
                                        MORE "Llama-4-Scout",
                                        MORE "Step-3.5-Flash",
                                        MORE "Llama-3.2-11B-Vision"};
    static const int widths[] = {1, 2, 4, 8, 3};
    char original[TEXT_MAX], text[TEXT_MAX];
    size_t good = 0, bad = 0;
    (void)state;
    for (size_t m = 0; m < sizeof names / sizeof names[0]; m++) {
        size_t length = read_model(names[m], original, sizeof original);
        for (int i = 0; i < MUTATIONS; i++) {
            kgen_plan_options options = {.size = sizeof options,
                                         .tp = widths[below(5)],
                                         .kv_dtype = below(2) ? KGEN_DTYPE_FP8 : KGEN_DTYPE_NONE,
                                         .engine = (kgen_engine)below(2),
                                         .spec_width = (int)below(16)};
            kgen_plan plan;
            kgen_error err = {.text = ""};
            size_t size = length;
            memcpy(text, original, length);
            for (size_t n = below(3); n < 3 && size; n++) size = mutate(text, size);
            char *exact = malloc(size ? size : 1); /* so that a read past the end shows */
            assert_non_null(exact);
            memcpy(exact, text, size);
            kgen_status status = kgen_plan_make(&plan, exact, size, &options, &err);
            free(exact);
            *(status == KGEN_OK ? &good : &bad) += 1;
            check_outcome(status, &plan, &err);
        }
    }
    print_message("mutations: %zu planned, %zu refused\n", good, bad);
    assert_true(good > 100 && bad > 100);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_models),
        cmocka_unit_test(test_hybrid_pages),
        cmocka_unit_test(test_engine_and_overrides),
        cmocka_unit_test(test_cache_kernels),
        cmocka_unit_test(test_prompt_kernels),
        cmocka_unit_test(test_cache_refusals),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_metadata_page),
        cmocka_unit_test(test_small_pages),
        cmocka_unit_test(test_gdn_grid),
        cmocka_unit_test(test_gdn_long_drafts),
        cmocka_unit_test(test_gdn_fields),
        cmocka_unit_test(test_gdn_refusals),
        cmocka_unit_test(test_latent_fields),
        cmocka_unit_test(test_indexer),
        cmocka_unit_test(test_mla_is_refused),
        cmocka_unit_test(test_indivisible_heads),
        cmocka_unit_test(test_bad_configs),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_unread_fields),
        cmocka_unit_test(test_unknown_model_type),
        cmocka_unit_test(test_huge_and_deep),
        cmocka_unit_test(test_mutations),
    };
    if (argc > 1) configs_dir = argv[1];
    random_state = test_seed();
    if (!random_state) random_state = 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
