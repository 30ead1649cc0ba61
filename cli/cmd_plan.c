/* kgen plan: model config -> which kernels, and what is missing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

void kgen__syntax_add_plan(kgen__syntax *s, kgen_plan_options *o) {
    *o = (kgen_plan_options){.size = sizeof *o, .tp = 1};
    const kgen__option options[] = {
        {"tp", 0, "N", kgen__read_int, &o->tp, 1, 1024, "tensor-parallel width (1)"},
        {"kv-dtype", 0, "TYPE", kgen__read_choice, &o->kv_dtype, 0, 0,
         "type of the KV cache: bf16, fp16, fp8, i8, i4 ..., 8bit: the cheaper (the model's)"},
        {"dtype", 0, "TYPE", kgen__read_choice, &o->x, 0, 0,
         "type of activations: bf16, fp16 (the model's)"},
        {"state-dtype", 0, "TYPE", kgen__read_choice, &o->state, 0, 0,
         "type of recurrent states: bf16, fp16, f32 (the model's or engine's)"},
        {"page-size", 0, "N", kgen__read_int, &o->page, 1, 1 << 20,
         "tokens of a page (the engine's choice)"},
        {"engine", 0, "NAME", kgen__read_choice, &o->engine, 0, 0, "vllm or sglang (vllm)"},
        {"spec-width", 0, "N", kgen__read_int, &o->spec_width, 0, 15,
         "draft tokens of speculative decoding (0)"},
        {"layout", 0, "NAME", kgen__read_choice, &o->layout, 0, 0,
         "nhd, hnd, shuffle or xpacked (the engine's)"},
        {"table", 0, "TYPE", kgen__read_choice, &o->table, 0, 0,
         "type of block tables: i32 or i64 (i32)"},
        {"descale", 0, "NAME", kgen__read_choice, &o->descale, 0, 0,
         "scales of 8-bit caches: head or token (the engine's)"},
        {"prompts", 0, "NAME", kgen__read_choice, &o->prompts, 0, 0,
         "kernels of prompts: as the engine has them, extend alone, or none (engine)"},
        {"alibi", 0, NULL, NULL, &o->alibi, 0, 0, "attention takes ALiBi slopes"},
        {"cascade", 0, NULL, NULL, &o->cascade, 0, 0,
         "also attention of sequences that share the pages of a prefix"},
        {"assume", 0, "NAME", kgen__read_choice, &o->dense, 0, 0,
         "dense: what is not known of a model is plain causal attention"},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) kgen__syntax_add(s, options[i]);
}

void kgen__plan_note_missing(const kgen_plan *plan) {
    for (size_t i = 0; i < plan->unsupported_count; i++)
        fprintf(stderr, "kgen: note: not covered: %s\n", plan->unsupported[i]);
}

/* Integers where an 8-bit float is converted in integer arithmetic: a third of the
 * instructions less (docs/performance.md). */
static kgen_dtype cheapest_8bit(const kgen_target *target) {
    return target->fp8_converts ? KGEN_DTYPE_FP8 : KGEN_DTYPE_I8;
}

static kgen_status choose_cache(kgen_plan_options *o, const kgen__archs *archs, kgen_error *err) {
    const kgen_target *first = archs->list[0];
    if ((int)o->kv_dtype != KGEN__KV_8BIT) return KGEN_OK;
    o->kv_dtype = cheapest_8bit(first);
    for (size_t i = 1; i < archs->count; i++)
        if (cheapest_8bit(archs->list[i]) != o->kv_dtype)
            return kgen_fail(err, KGEN_E_ARG,
                             "--kv-dtype 8bit: %s for %s, %s for %s; an --arch at a time",
                             kgen_dtype_name(o->kv_dtype), first->name,
                             kgen_dtype_name(cheapest_8bit(archs->list[i])), archs->list[i]->name);
    fprintf(stderr, "kgen: note: --kv-dtype %s: %s %s instructions for 8-bit floats\n",
            kgen_dtype_name(o->kv_dtype), first->name, first->fp8_converts ? "has" : "has no");
    return KGEN_OK;
}

kgen_status kgen__plan_load(kgen_plan *plan, const char *path, const kgen_plan_options *options,
                            const kgen__archs *archs, kgen_error *err) {
    char file[4096], *text;
    size_t size;
    struct stat info;
    kgen_error why;
    kgen_plan_options chosen = *options;
    KGEN_TRY(choose_cache(&chosen, archs, err));
    int folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    if ((size_t)snprintf(file, sizeof file, "%s%s", path, folder ? "/config.json" : "") >=
        sizeof file)
        return kgen_fail(err, KGEN_E_IO, "%.80s...: path too long", path);
    KGEN_TRY(kgen__input_read(&text, &size, file, err));
    kgen_status status = kgen_plan_make(plan, text, size, &chosen, &why);
    free(text);
    return status == KGEN_OK ? KGEN_OK : kgen_fail(err, status, "%s: %s", file, why.text);
}

kgen_status kgen__jobs_add_plan(kgen__jobs *jobs, const kgen_plan *plan, const kgen__archs *archs,
                                void (*skipped)(const kgen_plan_item *, const kgen_target *,
                                                const char *, void *),
                                void *user, kgen_error *err) {
    for (size_t i = 0; i < plan->count; i++) {
        for (size_t a = 0; a < archs->count; a++) {
            const kgen_plan_item *item = &plan->items[i];
            kgen_error why;
            if (kgen_spec_validate(&item->spec, archs->list[a], &why) == KGEN_OK)
                KGEN_TRY(kgen__jobs_add(jobs, &item->spec, archs->list[a], err));
            else if (skipped)
                skipped(item, archs->list[a], why.text, user);
        }
    }
    return KGEN_OK;
}

/* What the command shows: the plan, and what no arch has a kernel for. */
typedef struct view {
    const kgen_plan *plan;
    const kgen__archs *archs;
    json_t *skipped; /* strings */
} view;

static void note_skipped(const kgen_plan_item *item, const kgen_target *target, const char *why,
                         void *user) {
    view *v = user;
    char line[KGEN_SPEC_LINE_MAX];
    kgen_spec_print(line, &item->spec);
    json_array_append_new(v->skipped, json_sprintf("%s: %s: %s", target->name, line, why));
}

static void arch_list(char *out, size_t size, const view *v, const kgen_spec *spec) {
    size_t used = 0;
    snprintf(out, size, "-");
    for (size_t a = 0; a < v->archs->count && used < size; a++)
        if (kgen_spec_validate(spec, v->archs->list[a], NULL) == KGEN_OK)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? "," : "",
                                     v->archs->list[a]->name);
}

/* Only kernels with a scale take numbers of the model at launch, and of them only
 * those that normalise queries and keys the epsilons. */
static int has_scale(const kgen_plan_item *item) { return item->scale > 0; }
static int has_norms(const kgen_plan_item *item) { return item->l2_eps > 0; }

static void print_note(kgen__table *table, const kgen_plan_item *item) {
    char norm[80] = "", bound[48] = "";
    if (has_norms(item))
        snprintf(norm, sizeof norm, ", norm eps %g, l2 eps %g", item->norm_eps, item->l2_eps);
    if (!has_scale(item)) {
        kgen__table_cell(table, "%s", item->note);
        return;
    }
    if (item->lower_bound < 0) snprintf(bound, sizeof bound, ", lower bound %g", item->lower_bound);
    kgen__table_cell(table, "%s, scale %.6g%s%s", item->note, item->scale, norm, bound);
}

static void print_table(const view *v) {
    kgen__table table;
    static const char *const heading[] = {"SPEC", "ARCH", "LAYERS", "Q HEADS", "KV HEADS", "NOTE"};
    kgen__table_init(&table, "llrrrl", heading);
    for (size_t i = 0; i < v->plan->count; i++) {
        const kgen_plan_item *item = &v->plan->items[i];
        char line[KGEN_SPEC_LINE_MAX], archs[256];
        kgen_spec_print(line, &item->spec);
        arch_list(archs, sizeof archs, v, &item->spec);
        kgen__table_cell(&table, "%s", line);
        kgen__table_cell(&table, "%s", archs);
        kgen__table_cell(&table, "%d", item->layers);
        kgen__table_cell(&table, "%d", item->q_heads);
        kgen__table_cell(&table, "%d", item->kv_heads);
        print_note(&table, item);
    }
    kgen__table_print(&table, stdout);
    kgen__table_free(&table);
}

static void print_text(const view *v) {
    printf("%s, one rank:\n\n", v->plan->model_type);
    print_table(v);
    if (v->plan->unsupported_count || json_array_size(v->skipped))
        printf("\nnot covered by this version:\n");
    for (size_t i = 0; i < v->plan->unsupported_count; i++)
        printf("  - %s\n", v->plan->unsupported[i]);
    for (size_t i = 0; i < json_array_size(v->skipped); i++)
        printf("  - %s\n", json_string_value(json_array_get(v->skipped, i)));
}

static json_t *item_json(const view *v, const kgen_plan_item *item) {
    char line[KGEN_SPEC_LINE_MAX];
    kgen_spec_print(line, &item->spec);
    json_t *archs = json_array();
    for (size_t a = 0; a < v->archs->count; a++)
        if (kgen_spec_validate(&item->spec, v->archs->list[a], NULL) == KGEN_OK)
            json_array_append_new(archs, json_string(v->archs->list[a]->name));
    json_t *json = json_pack("{s:s, s:o, s:i, s:i, s:i, s:s}", "spec", line, "archs", archs,
                             "layers", item->layers, "q_heads", item->q_heads, "kv_heads",
                             item->kv_heads, "note", item->note);
    if (!has_scale(item)) return json;
    json_object_set_new(json, has_norms(item) ? "q_scale" : "softmax_scale",
                        json_real(item->scale));
    if (!has_norms(item)) return json;
    json_object_set_new(json, "norm_eps", json_real(item->norm_eps));
    json_object_set_new(json, "l2_eps", json_real(item->l2_eps));
    if (item->lower_bound < 0)
        json_object_set_new(json, "lower_bound", json_real(item->lower_bound));
    return json;
}

/* Which kernels serve which layer: indices of "kernels". */
static json_t *layers_json(const kgen_plan *plan) {
    json_t *layers = json_array();
    for (size_t i = 0; i < plan->layer_count; i++) {
        const kgen_plan_layer *layer = &plan->layers[i];
        json_t *kernels = json_array();
        for (uint32_t n = 0; n < layer->count; n++)
            json_array_append_new(kernels, json_integer(layer->items[n]));
        json_array_append_new(layers,
                              json_pack("{s:s, s:o}", "kind", layer->kind, "kernels", kernels));
    }
    return layers;
}

static int print_json(const view *v) {
    json_t *items = json_array(), *unsupported = json_array();
    for (size_t i = 0; i < v->plan->count; i++)
        json_array_append_new(items, item_json(v, &v->plan->items[i]));
    for (size_t i = 0; i < v->plan->unsupported_count; i++)
        json_array_append_new(unsupported, json_string(v->plan->unsupported[i]));
    json_array_extend(unsupported, v->skipped);
    return kgen__json_print(json_pack("{s:s, s:o, s:o, s:o}", "model_type", v->plan->model_type,
                                      "kernels", items, "layers", layers_json(v->plan),
                                      "unsupported", unsupported));
}

static void write_lines(FILE *file, const view *v, const kgen__jobs *jobs) {
    fprintf(file, "# kgen manifest: %s, one rank. Build it: kgen build --manifest FILE\n",
            v->plan->model_type);
    for (size_t i = 0; i < v->plan->unsupported_count; i++)
        fprintf(file, "# not covered: %s\n", v->plan->unsupported[i]);
    for (size_t i = 0; i < jobs->count; i++) {
        char line[KGEN_SPEC_LINE_MAX];
        kgen_spec_print(line, &jobs->list[i].spec);
        fprintf(file, "%s @%s\n", line, jobs->list[i].target->name);
    }
}

static kgen_status write_manifest(const char *path, const view *v, const kgen__jobs *jobs,
                                  kgen_error *err) {
    FILE *file = fopen(path, "w");
    if (!file) return kgen_fail(err, KGEN_E_IO, "%s: cannot write: %s", path, strerror(errno));
    write_lines(file, v, jobs);
    int failed = ferror(file);
    if (fclose(file) || failed)
        return kgen_fail(err, KGEN_E_IO, "%s: cannot write: %s", path, strerror(errno));
    return KGEN_OK;
}

static int show(const kgen_plan *plan, const kgen__archs *archs, const char *manifest, int json) {
    kgen_error err;
    kgen__jobs jobs = {0};
    view v = {plan, archs, json_array()};
    kgen_status status = kgen__jobs_add_plan(&jobs, plan, archs, note_skipped, &v, &err);
    if (status == KGEN_OK && !jobs.count)
        status = kgen_fail(&err, KGEN_E_UNSUPPORTED, "no kernel for this --arch: %s",
                           json_string_value(json_array_get(v.skipped, 0)));
    if (status == KGEN_OK && manifest) status = write_manifest(manifest, &v, &jobs, &err);
    int code = 0;
    if (status != KGEN_OK)
        code = kgen__cli_fail(&err);
    else if (json)
        code = print_json(&v);
    else
        print_text(&v);
    json_decref(v.skipped);
    kgen__jobs_free(&jobs);
    return code;
}

/* 8-bit floats that a target converts in integer arithmetic cost more than integers
 * (docs/attention.md). */
static void note_conversions(const kgen_plan_options *o, const kgen__archs *archs) {
    int floats = (int)o->kv_dtype != KGEN__KV_8BIT && kgen_dtype_size(o->kv_dtype) == 1 &&
                 o->kv_dtype != KGEN_DTYPE_I8 && o->kv_dtype != KGEN_DTYPE_I4;
    for (size_t i = 0; floats && i < archs->count; i++) {
        const kgen_target *target = archs->list[i];
        if (!target->fp8_converts)
            fprintf(
                stderr,
                "kgen: note: %s has no instructions for 8-bit floats: --kv-dtype i8 is as small "
                "and takes two thirds of the instructions, i4 is half of it\n",
                target->name);
    }
}

int kgen__command_plan(int argc, char **argv) {
    kgen_plan_options options;
    kgen__archs archs = {0};
    const char *manifest = NULL, *model = NULL;
    int json = 0, first, code;
    kgen__syntax s = {.command = "plan",
                      .arguments = "[MODEL]",
                      .about = "Lists the kernels that one rank of a model needs. MODEL is a "
                               "Hugging Face config.json,\nthe folder that holds it, or - for "
                               "standard input.",
                      .most = 1};
    kgen__syntax_add(
        &s, (kgen__option){"model", 0, "FILE", kgen__read_text, &model, 0, 0, "the same as MODEL"});
    kgen__syntax_add_plan(&s, &options);
    kgen__syntax_add(&s, (kgen__option){"arch", 0, "A,B", kgen__read_archs, &archs, 0, 0,
                                        "architectures (gfx942,gfx950)"});
    kgen__syntax_add(&s, (kgen__option){"output", 'o', "FILE", kgen__read_text, &manifest, 0, 0,
                                        "write a manifest for `kgen build --manifest`"});
    kgen__syntax_add_json(&s, &json);
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;
    if ((first < argc) == (model != NULL)) return kgen__cli_usage("plan", "one MODEL expected");
    kgen__archs_default(&archs);

    kgen_error err;
    kgen_plan plan;
    if (kgen__plan_load(&plan, model ? model : argv[first], &options, &archs, &err) != KGEN_OK)
        return kgen__cli_fail(&err);
    note_conversions(&options, &archs);
    code = show(&plan, &archs, manifest, json);
    kgen_plan_free(&plan);
    return code;
}
