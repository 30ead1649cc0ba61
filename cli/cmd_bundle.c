/* kgen pack, merge, unpack, verify: caches that are shipped. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* ---- counts ---------------------------------------------------------------- */

static json_t *counts_json(const char *path, const kgen_bundle_counts *counts) {
    return json_pack("{s:s, s:I, s:I, s:I, s:s?}", "path", path, "entries",
                     (json_int_t)counts->entries, "bytes", (json_int_t)counts->bytes, "bad",
                     (json_int_t)counts->bad, "signed_by",
                     *counts->public_key ? counts->public_key : NULL);
}

static int print_counts(const char *what, const char *path, const kgen_bundle_counts *counts,
                        int json) {
    if (json) return kgen__json_print(counts_json(path, counts));
    printf("%s: %s%llu kernels, %.1f kB", path, what, (unsigned long long)counts->entries,
           (double)counts->bytes / 1000);
    if (counts->bad) printf(", %llu damaged or refused", (unsigned long long)counts->bad);
    if (*counts->public_key) printf(", signed by %s", counts->public_key);
    printf("\n");
    return 0;
}

/* ---- pack, merge ------------------------------------------------------------- */

typedef struct packing {
    const char *out, *key, *cache_dir;
    kgen__archs archs;
    int json;
} packing;

static int is_wanted(const kgen_entry *entry, void *user) {
    const kgen__archs *archs = user;
    for (size_t i = 0; i < archs->count; i++)
        if (strcmp(archs->list[i]->name, entry->target) == 0) return 1;
    return archs->count == 0;
}

/* *dir: free(). */
static kgen_status user_folder(char **dir, const char *cache_dir, kgen_error *err) {
    kgen_cache *cache = NULL;
    KGEN_TRY(kgen_cache_open(&cache, cache_dir, err));
    const char *found = kgen_cache_dir(cache);
    *dir = found ? strdup(found) : NULL;
    kgen_cache_close(cache);
    if (*dir) return KGEN_OK;
    return kgen_fail(err, found ? KGEN_E_NOMEM : KGEN_E_IO, "cache: no usable folder");
}

static int write_bundle(packing *p, const char *const *sources, size_t count) {
    const kgen_bundle_options options = {
        .size = sizeof options, .key_file = p->key, .wanted = is_wanted, .user = &p->archs};
    kgen_bundle_counts counts;
    kgen_error err;
    kgen_status status = kgen_bundle_write(&counts, p->out, sources, count, &options, &err);
    if (status != KGEN_OK) return kgen__cli_fail(&err);
    int code = print_counts("", p->out, &counts, p->json);
    if (!counts.bad || code) return code;
    kgen_fail(&err, KGEN_E_IO,
              "%s: %llu kernels, notes or folders are damaged or refused and were left out", p->out,
              (unsigned long long)counts.bad);
    return kgen__cli_fail(&err);
}

static void add_packing(kgen__syntax *s, packing *p) {
    kgen__syntax_add(
        s, (kgen__option){"output", 'o', "FILE", kgen__read_text, &p->out, 0, 0, "the bundle"});
    kgen__syntax_add(s, (kgen__option){"key", 0, "FILE", kgen__read_text, &p->key, 0, 0,
                                       "sign with this key, 64 hex digits"});
    kgen__syntax_add(s, (kgen__option){"arch", 0, "A,B", kgen__read_archs, &p->archs, 0, 0,
                                       "only these architectures"});
    kgen__syntax_add_json(s, &p->json);
}

static int make_key(const char *path) {
    char public_key[65];
    kgen_error err;
    if (kgen_bundle_key_make(public_key, path, &err) != KGEN_OK) return kgen__cli_fail(&err);
    printf("%s\n", public_key);
    return 0;
}

int kgen__command_pack(int argc, char **argv) {
    packing p = {0};
    const char *new_key = NULL;
    int first, code;
    kgen__syntax s = {.command = "pack",
                      .arguments = "",
                      .about = "Writes the kernels of the cache folder into one file, which\n"
                               "KGEN_CACHE_LAYERS names where they are used."};
    add_packing(&s, &p);
    kgen__syntax_add_cache_dir(&s, &p.cache_dir);
    kgen__syntax_add(&s, (kgen__option){"new-key", 0, "FILE", kgen__read_text, &new_key, 0, 0,
                                        "make a key to sign with, and print its public part"});
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;
    if (new_key && p.out) return kgen__cli_usage("pack", "--new-key: takes no --output");
    if (new_key) return make_key(new_key);
    if (!p.out) return kgen__cli_usage("pack", "--output FILE: which file?");
    kgen_error err;
    char *dir = NULL;
    if (user_folder(&dir, p.cache_dir, &err) != KGEN_OK) return kgen__cli_fail(&err);
    const char *const sources[] = {dir};
    code = write_bundle(&p, sources, 1);
    free(dir);
    return code;
}

int kgen__command_merge(int argc, char **argv) {
    packing p = {0};
    int first, code;
    kgen__syntax s = {.command = "merge",
                      .arguments = "SOURCE ...",
                      .about = "Writes the kernels of bundles and cache folders into one bundle.\n"
                               "Of a kernel in several the first counts.",
                      .least = 1,
                      .most = -1};
    add_packing(&s, &p);
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;
    if (!p.out) return kgen__cli_usage("merge", "--output FILE: which file?");
    return write_bundle(&p, (const char *const *)(argv + first), (size_t)(argc - first));
}

/* ---- unpack -------------------------------------------------------------------- */

int kgen__command_unpack(int argc, char **argv) {
    const char *cache_dir = NULL;
    int shared = 0, json = 0, first, code;
    kgen__syntax s = {.command = "unpack",
                      .arguments = "BUNDLE",
                      .about = "Puts the kernels of a bundle into the cache folder.",
                      .least = 1,
                      .most = 1};
    kgen__syntax_add_cache_dir(&s, &cache_dir);
    kgen__syntax_add(&s,
                     (kgen__option){"shared", 0, NULL, NULL, &shared, 0, 0,
                                    "every user may read them: a folder for KGEN_CACHE_LAYERS"});
    kgen__syntax_add_json(&s, &json);
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;
    kgen_error err;
    kgen_bundle_counts counts;
    char *dir = NULL;
    kgen_status status = user_folder(&dir, cache_dir, &err);
    if (status == KGEN_OK) status = kgen_bundle_unpack(&counts, argv[first], dir, shared, &err);
    if (status == KGEN_OK && counts.bad)
        status = kgen_fail(&err, KGEN_E_IO, "%s: %llu kernels are damaged and were left out",
                           argv[first], (unsigned long long)counts.bad);
    code = status == KGEN_OK ? print_counts("", dir, &counts, json) : kgen__cli_fail(&err);
    free(dir);
    return code;
}

/* ---- verify ---------------------------------------------------------------------- */

typedef struct verifying {
    const char *manifest, *cache_dir;
    kgen__archs archs;
    int no_variants, deep, rebuild, json, code; /* code: of the first failure */
    json_t *paths, *missing;
    size_t planned;
} verifying;

static void note_failure(verifying *v, const kgen_error *err) {
    int code = kgen__cli_fail(err);
    if (!v->code) v->code = code;
}

static void verify_path(verifying *v, const char *path) {
    kgen_bundle_counts counts = {0};
    kgen_error err;
    if (kgen_bundle_verify(&counts, path, &err) != KGEN_OK) note_failure(v, &err);
    json_t *row = counts_json(path, &counts);
    if (!v->json) print_counts("", path, &counts, 0);
    if (v->deep && access(path, R_OK) == 0) {
        kgen__deep deep;
        kgen__verify_deep(&deep, path, (size_t)v->rebuild);
        if (!v->code) v->code = deep.code;
        if (!v->json) kgen__deep_print(&deep);
        json_object_set_new(row, "deep", kgen__deep_json(&deep));
        json_decref(deep.wrong);
    }
    json_array_append_new(v->paths, row);
}

static void verify_layers(verifying *v, kgen_cache *cache) {
    kgen_cache_layer layer;
    kgen_error err;
    for (size_t i = 0; kgen_cache_layer_at(cache, i, &layer); i++) {
        if (!*layer.path || strcmp(layer.kind, "remote") == 0) continue;
        if (strcmp(layer.kind, "user") == 0 && !kgen_cache_dir(cache)) continue;
        if (*layer.why) {
            kgen_fail(&err, KGEN_E_IO, "%s", layer.why);
            note_failure(v, &err);
        } else if (access(layer.path, F_OK) == 0) {
            verify_path(v, layer.path);
        }
    }
}

static void note_missing(verifying *v, const kgen_job *job, const kgen_error *why) {
    char line[KGEN_SPEC_LINE_MAX];
    kgen_error err;
    kgen_spec_print(line, &job->spec);
    json_array_append_new(v->missing, json_pack("{s:s, s:s, s:s}", "spec", line, "arch",
                                                job->target->name, "why", why->text));
    kgen_fail(&err, why->status, "%s @%s: %s", line, job->target->name, why->text);
    note_failure(v, &err);
}

/* As an image without a compiler looks them up. */
static kgen_status verify_jobs(verifying *v, kgen_cache *cache, const kgen__jobs *jobs,
                               kgen_error *err) {
    const kgen_build_options options = {.size = sizeof options, .offline = 1};
    kgen_job_result *results = calloc(jobs->count, sizeof *results);
    if (!results) return kgen_fail(err, KGEN_E_NOMEM, "no memory for %zu jobs", jobs->count);
    v->planned = jobs->count;
    (void)kgen_build(cache, jobs->list, jobs->count, &options, results, NULL);
    for (size_t i = 0; i < jobs->count; i++)
        if (results[i].outcome == KGEN_JOB_FAILED)
            note_missing(v, &jobs->list[i], &results[i].error);
    kgen__results_free(results, jobs->count);
    return KGEN_OK;
}

static kgen_status verify_manifest(verifying *v, kgen_cache *cache, kgen_error *err) {
    kgen__jobs jobs = {0};
    kgen_status status = kgen__jobs_add_manifest(&jobs, v->manifest, &v->archs, err);
    if (status == KGEN_OK && !jobs.count)
        status = kgen_fail(err, KGEN_E_UNSUPPORTED, "%s: no kernel in it", v->manifest);
    if (status == KGEN_OK && !v->no_variants) status = kgen__jobs_add_variants(&jobs, err);
    if (status == KGEN_OK) status = verify_jobs(v, cache, &jobs, err);
    kgen__jobs_free(&jobs);
    return status;
}

static kgen_status verify(verifying *v, char **paths, int count, kgen_error *err) {
    kgen_cache *cache = NULL;
    kgen_status status = kgen_cache_open(&cache, v->cache_dir, err);
    if (status == KGEN_OK && v->manifest) status = verify_manifest(v, cache, err);
    if (status == KGEN_OK && !v->manifest && !count) verify_layers(v, cache);
    for (int i = 0; status == KGEN_OK && i < count; i++) verify_path(v, paths[i]);
    kgen_cache_close(cache);
    return status;
}

static int conclude(const verifying *v) {
    size_t missing = json_array_size(v->missing);
    if (v->json)
        (void)kgen__json_print(json_pack("{s:O, s:I, s:O}", "paths", v->paths, "planned",
                                         (json_int_t)v->planned, "missing", v->missing));
    else if (v->manifest)
        printf("%zu planned, %zu there, %zu missing\n", v->planned, v->planned - missing, missing);
    return v->code;
}

int kgen__command_verify(int argc, char **argv) {
    verifying v = {.paths = json_array(), .missing = json_array(), .rebuild = 3};
    int first, code;
    kgen__syntax s = {.command = "verify",
                      .arguments = "[BUNDLE|FOLDER ...]",
                      .about = "Reads every byte of bundles and cache folders; by default of all "
                               "layers. With\n--manifest: is every planned kernel there, where no "
                               "compiler is? Exit code 10: no.",
                      .most = -1};
    kgen__syntax_add(&s, (kgen__option){"deep", 0, NULL, NULL, &v.deep, 0, 0,
                                        "also read each code object again: is it what its entry "
                                        "says?"});
    kgen__syntax_add(&s, (kgen__option){"rebuild", 0, "N", kgen__read_int, &v.rebuild, 0, 1000000,
                                        "with --deep: compile N kernels again, and compare (3)"});
    kgen__syntax_add(&s, (kgen__option){"manifest", 'm', "FILE", kgen__read_text, &v.manifest, 0, 0,
                                        "lines `SPEC @ARCH`, as `kgen plan -o` writes them"});
    kgen__syntax_add(&s, (kgen__option){"arch", 0, "A,B", kgen__read_archs, &v.archs,
                                        KGEN__ARCHS_DEFAULT, 0, "architectures"});
    kgen__syntax_add(&s, (kgen__option){"no-variants", 0, NULL, NULL, &v.no_variants, 0, 0,
                                        "only defaults, as of `kgen build`"});
    kgen__syntax_add_cache_dir(&s, &v.cache_dir);
    kgen__syntax_add_json(&s, &v.json);
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) {
        json_decref(v.paths);
        json_decref(v.missing);
        return code;
    }
    kgen__archs_default(&v.archs);
    kgen_error err;
    kgen_status status = verify(&v, argv + first, argc - first, &err);
    code = status == KGEN_OK ? conclude(&v) : kgen__cli_fail(&err);
    json_decref(v.paths);
    json_decref(v.missing);
    return code;
}
