/* kgen doctor: what is there, and what to do about what is not. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include <kgen/tuning_rows.h>

enum { MAX_DEVICES = 16 };

typedef struct health {
    json_t *toolchains, *devices, *tuning, *cache, *planned;
    int amd; /* 1: an AMD target can be compiled */
} health;

static void look_for_toolchains(health *h) {
    for (size_t i = 0; i < kgen_target_count(); i++) {
        const kgen_target *target = kgen_target_at(i);
        kgen_toolchain found;
        kgen_error why;
        memset(&found, 0, sizeof found);
        kgen_status status = kgen_toolchain_find(&found, target, &why);
        if (status == KGEN_OK && target->vendor == KGEN_VENDOR_AMD) h->amd = 1;
        json_array_append_new(
            h->toolchains,
            status == KGEN_OK ? json_pack("{s:s, s:s, s:s, s:s}", "arch", target->name, "toolchain",
                                          found.name, "path", found.path, "id", found.id)
                              : json_pack("{s:s, s:s}", "arch", target->name, "missing", why.text));
    }
}

/* Returns 0 when there is no such device; a GPU of an unknown architecture is one. */
static int look_at_device(health *h, const char *name, int say_missing) {
    kgen_context *ctx;
    kgen_error why;
    const kgen_open_options options = {
        .size = sizeof options, .device = name, .cache_dir = "", .mode = KGEN_MODE_OFFLINE};
    kgen_status status = kgen_open(&ctx, &options, &why);
    if (status != KGEN_OK) {
        if (say_missing || status == KGEN_E_TARGET)
            json_array_append_new(h->devices,
                                  json_pack("{s:s, s:s}", "device", name, "missing", why.text));
        return status == KGEN_E_TARGET;
    }
    json_array_append_new(h->devices, json_pack("{s:s, s:s, s:s}", "device", name, "label",
                                                kgen_context_device(ctx), "arch",
                                                kgen_context_target(ctx)->name));
    kgen_close(ctx);
    return 1;
}

static void look_for_devices(health *h) {
    static const char *const drivers[] = {"hip", "cuda"};
    for (size_t d = 0; d < 2; d++) {
        for (int i = 0, more = 1; more && i < MAX_DEVICES; i++) {
            char name[32];
            snprintf(name, sizeof name, "%s:%d", drivers[d], i);
            more = look_at_device(h, name, i == 0);
        }
    }
    look_at_device(h, "cpu", 1);
}

/* Rows of a layer that are stale. */
static size_t count_stale(const kgen_tuning_layer *layer) {
    size_t count = 0;
    for (size_t i = 0; i < layer->count; i++) {
        int stale = 0;
        count += kgen_tuning_row_stale(&stale, &layer->rows[i], NULL) != KGEN_OK || stale;
    }
    return count;
}

static json_t *look_at_tuning(void) {
    json_t *list = json_array();
    const kgen_tuning_layer *layers;
    kgen_tuning *db;
    if (kgen_tuning_open(&db, NULL, NULL) != KGEN_OK) return list;
    size_t count = kgen_tuning_layers(&layers, db);
    for (size_t i = 0; i < count; i++) {
        const kgen_tuning_layer *layer = &layers[i];
        size_t stale = count_stale(layer);
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s?}", "layer", layer->name, "path",
                            layer->path, "rows", (json_int_t)layer->count, "valid",
                            (json_int_t)(layer->count - stale), "stale", (json_int_t)stale,
                            "bad_lines", (json_int_t)layer->bad, "why", layer->why));
    }
    kgen_tuning_close(db);
    return list;
}

static long number_of(const json_t *object, const char *key) {
    return (long)json_integer_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* Rows of `list` as "name  what", and "name  missing: why". */
static void print_rows(const char *title, const json_t *list, const char *name, const char *what,
                       const char *where) {
    printf("%s\n", title);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        if (json_object_get(row, "missing"))
            printf("  %-10s missing: %s\n", text_of(row, name), text_of(row, "missing"));
        else
            printf("  %-10s %s  (%s)\n", text_of(row, name), text_of(row, what),
                   text_of(row, where));
    }
}

static void print_tuning(const json_t *list) {
    printf("\ntuning\n");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        printf("  %-10s %ld rows, %ld valid, %ld stale, %ld bad lines  (%s)\n",
               text_of(row, "layer"), number_of(row, "rows"), number_of(row, "valid"),
               number_of(row, "stale"), number_of(row, "bad_lines"), text_of(row, "path"));
        if (*text_of(row, "why")) printf("             %s\n", text_of(row, "why"));
    }
    if (!json_array_size(list)) printf("  none: KGEN_TUNING is empty\n");
}

/* ---- self-test ------------------------------------------------------------ */

static int is_tested(const json_t *list, const char *id) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(text_of(json_array_get(list, i), "id"), id) == 0) return 1;
    return 0;
}

/* Each compiler makes a small kernel of its first target, past every cache. */
static json_t *test_compilers(const json_t *toolchains, int *code) {
    const kgen_build_options options = {.size = sizeof options, .workers = 1};
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(toolchains); i++) {
        const json_t *row = json_array_get(toolchains, i);
        kgen_job job;
        kgen_job_result result;
        kgen_error err;
        if (!*text_of(row, "id") || is_tested(list, text_of(row, "id"))) continue;
        if (kgen_spec_parse(&job.spec, "scatter:op=draft_lens", NULL) != KGEN_OK ||
            kgen_target_find(&job.target, text_of(row, "arch"), NULL) != KGEN_OK)
            continue;
        kgen_status status = kgen_build(NULL, &job, 1, &options, &result, &err);
        if (status != KGEN_OK && !*code) *code = kgen_status_exit_code(status);
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:I, s:s?}", "arch", job.target->name, "toolchain",
                            text_of(row, "toolchain"), "id", text_of(row, "id"), "ms",
                            (json_int_t)(result.entry ? result.entry->record.compile_ms : 0),
                            "error", status == KGEN_OK ? NULL : err.text));
        kgen_entry_free(result.entry);
    }
    return list;
}

static void print_tests(const json_t *list) {
    printf("self-test\n");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        if (*text_of(row, "error"))
            printf("  %-10s %s: failed: %s\n", text_of(row, "arch"), text_of(row, "toolchain"),
                   text_of(row, "error"));
        else
            printf("  %-10s %s: a kernel in %ld ms\n", text_of(row, "arch"),
                   text_of(row, "toolchain"), number_of(row, "ms"));
    }
    printf("\n");
}

/* ---- cache ---------------------------------------------------------------- */

static json_t *look_at_layers(const kgen_cache *cache) {
    json_t *list = json_array();
    kgen_cache_layer layer;
    for (size_t i = 0; kgen_cache_layer_at(cache, i, &layer); i++)
        if (*layer.path)
            json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "path", layer.path, "kind",
                                                  layer.kind, "why", layer.why));
    return list;
}

static double hit_rate(const kgen_cache_stats *s) {
    uint64_t hits = s->hits_user + s->hits_bundle + s->hits_system + s->hits_remote;
    uint64_t misses = s->misses_new + s->misses_compiler + s->misses_gone;
    return hits + misses ? (double)hits / (double)(hits + misses) : 0;
}

/* What processes had of it since it was made, or NULL. */
static json_t *look_at_use(const kgen_cache *cache) {
    kgen_cache_use use;
    const kgen_cache_stats *s = &use.stats;
    if (!kgen_cache_get_use(cache, &use)) return json_null();
    return json_pack("{s:I, s:f, s:{s:I, s:I, s:I, s:I}, s:{s:I, s:I, s:I}, s:I, s:I, s:I}",
                     "since", (json_int_t)use.since, "hit_rate", hit_rate(s), "hits", "user",
                     (json_int_t)s->hits_user, "bundle", (json_int_t)s->hits_bundle, "folder",
                     (json_int_t)s->hits_system, "remote", (json_int_t)s->hits_remote, "misses",
                     "never_built", (json_int_t)s->misses_new, "other_compiler",
                     (json_int_t)s->misses_compiler, "gone", (json_int_t)s->misses_gone,
                     "published", (json_int_t)s->published, "damaged", (json_int_t)s->quarantined,
                     "remote_failures", (json_int_t)s->remote_failures);
}

static json_t *look_at_cache(kgen_cache *cache) {
    kgen_cache_health found;
    kgen_error err;
    const char *dir = kgen_cache_dir(cache);
    if (kgen_cache_examine(cache, &found, &err) != KGEN_OK && !found.cannot_save.text[0])
        found.cannot_save = err;
    return json_pack("{s:s?, s:o, s:I, s:I, s:I, s:b, s:s?, s:s?, s:o}", "dir", dir, "layers",
                     look_at_layers(cache), "entries", (json_int_t)found.entries, "bytes",
                     (json_int_t)found.bytes, "refused", (json_int_t)found.refused,
                     "open_to_others", found.open_to_others, "cannot_save",
                     found.cannot_save.text[0] ? found.cannot_save.text : NULL, "remote",
                     found.remote.status != KGEN_OK ? found.remote.text : NULL, "use",
                     look_at_use(cache));
}

static void print_use(const json_t *use) {
    char since[32] = "";
    time_t began = (time_t)number_of(use, "since");
    struct tm day;
    const json_t *hits = json_object_get(use, "hits"), *misses = json_object_get(use, "misses");
    if (json_is_null(use)) return;
    if (localtime_r(&began, &day)) strftime(since, sizeof since, "%Y-%m-%d", &day);
    printf("  since %s %.1f %% of look-ups were hits: %ld here, %ld in bundles, %ld in folders, "
           "%ld on a server\n",
           since, 100 * json_real_value(json_object_get(use, "hit_rate")), number_of(hits, "user"),
           number_of(hits, "bundle"), number_of(hits, "folder"), number_of(hits, "remote"));
    printf("  missed: %ld never built, %ld built by another compiler, %ld gone (removed or "
           "damaged); %ld damaged files\n",
           number_of(misses, "never_built"), number_of(misses, "other_compiler"),
           number_of(misses, "gone"), number_of(use, "damaged"));
}

static void print_layers(const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const char *why = text_of(row, "why");
        if (strcmp(text_of(row, "kind"), "user") == 0) continue;
        printf("  %-8s %s\n", text_of(row, "kind"), *why ? why : text_of(row, "path"));
    }
}

static int is_refused(const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (*text_of(json_array_get(list, i), "why")) return 1;
    return 0;
}

static void print_cache(const json_t *cache) {
    const char *dir = text_of(cache, "dir");
    printf("\ncache\n");
    print_layers(json_object_get(cache, "layers"));
    printf("  %s\n  %ld kernels, %.1f kB\n", *dir ? dir : "no usable folder: memory only",
           number_of(cache, "entries"), (double)number_of(cache, "bytes") / 1000);
    print_use(json_object_get(cache, "use"));
    if (number_of(cache, "refused"))
        printf("  %ld files or folders are refused: damaged, links, or not of this user or root\n",
               number_of(cache, "refused"));
    if (json_is_true(json_object_get(cache, "open_to_others")))
        printf(
            "  warning: others can write into this folder: they can remove kernels, and lock\n"
            "  this user out; `chmod 700` it, and share kernels as a layer (KGEN_CACHE_LAYERS)\n");
    if (*text_of(cache, "cannot_save")) printf("  %s\n", text_of(cache, "cannot_save"));
    if (*text_of(cache, "remote")) printf("  remote   %s\n", text_of(cache, "remote"));
    printf("\n");
}

static const char *advice(const health *h) {
    if (!h->amd)
        return "No compiler for AMD GPUs: install ROCm's hipRTC, or set KGEN_ROCM_PATH to it, or "
               "run `./run setup` in the source folder.";
    if (*text_of(h->cache, "cannot_save"))
        return "Kernels cannot be saved: until that is mended, or KGEN_CACHE_DIR is another "
               "folder, they are compiled again in every process.";
    if (is_refused(json_object_get(h->cache, "layers")))
        return "A layer of KGEN_CACHE_LAYERS, or the server, is refused: the line above says why.";
    if (*text_of(h->cache, "remote"))
        return "The server of KGEN_CACHE_REMOTE is of no use: the line above says why. Kernels are "
               "compiled meanwhile.";
    if (number_of(h->cache, "refused"))
        return "Some of the cache is refused, and compiled again where it was used: look at its "
               "owner and mode, or give this user another KGEN_CACHE_DIR.";
    return "Ready: `kgen plan MODEL` shows what a model needs, `kgen build --model MODEL` "
           "compiles it.";
}

static void look_at_planned(health *h, kgen_cache *cache, const char *manifest) {
    for (size_t i = 0; manifest && i < json_array_size(h->devices); i++) {
        const json_t *device = json_array_get(h->devices, i);
        if (json_object_get(device, "missing")) continue;
        json_array_append_new(
            h->planned,
            kgen__planned_on(cache, manifest, text_of(device, "device"), text_of(device, "arch")));
    }
}

int kgen__command_doctor(int argc, char **argv) {
    const char *cache_dir = NULL, *manifest = NULL;
    int json = 0, test = 0, failed = 0, first, code;
    kgen__syntax s = {
        .command = "doctor",
        .arguments = "",
        .about = "Shows compilers, devices, tuning rows and cache, and what to do; of a manifest, "
                 "what each\ndevice has of it. Exit code 7: no compiler for AMD GPUs."};
    kgen__syntax_add(&s, (kgen__option){"manifest", 'm', "FILE", kgen__read_text, &manifest, 0, 0,
                                        "lines `SPEC @ARCH`, as `kgen plan -o` writes them"});
    kgen__syntax_add(&s, (kgen__option){"self-test", 0, NULL, NULL, &test, 0, 0,
                                        "also compile a small kernel with each compiler"});
    kgen__syntax_add_cache_dir(&s, &cache_dir);
    kgen__syntax_add_json(&s, &json);
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;

    kgen_error err;
    kgen_cache *cache;
    if (kgen_cache_open(&cache, cache_dir, &err) != KGEN_OK) return kgen__cli_fail(&err);
    health h = {json_array(),         json_array(), look_at_tuning(),
                look_at_cache(cache), json_array(), 0};
    look_for_toolchains(&h);
    look_for_devices(&h);
    look_at_planned(&h, cache, manifest);
    json_t *tests = test ? test_compilers(h.toolchains, &failed) : json_array();
    if (json) {
        code = kgen__json_print(json_pack(
            "{s:s, s:O, s:O, s:O, s:O, s:O, s:O, s:s}", "version", KGEN_VERSION, "toolchains",
            h.toolchains, "devices", h.devices, "planned", h.planned, "tuning", h.tuning, "cache",
            h.cache, "self_test", tests, "advice", advice(&h)));
    } else {
        printf("kgen %s\n\n", KGEN_VERSION);
        print_rows("compilers", h.toolchains, "arch", "toolchain", "path");
        print_rows("\ndevices", h.devices, "device", "label", "arch");
        if (manifest) kgen__planned_print(h.planned, manifest);
        print_tuning(h.tuning);
        print_cache(h.cache);
        if (test) print_tests(tests);
        printf("%s\n", advice(&h));
    }
    if (!h.amd && !code) code = kgen_status_exit_code(KGEN_E_TOOLCHAIN);
    if (!code) code = failed;
    json_decref(tests);
    json_decref(h.toolchains);
    json_decref(h.devices);
    json_decref(h.planned);
    json_decref(h.tuning);
    json_decref(h.cache);
    kgen_cache_close(cache);
    return code;
}
