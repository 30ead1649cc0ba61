/* kgen list, inspect, source: what was compiled. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"

enum { SHORT_KEY = 12 };

/* ---- one entry as a row, as JSON ----------------------------------------- */

void kgen__table_entry_heading(kgen__table *table) {
    static const char *const names[] = {"KEY", "ARCH",  "VGPR", "AGPR", "SGPR",
                                        "LDS", "WAVES", "CODE", "MS",   "KERNEL"};
    kgen__table_init(table, "llrrrrrrrl", names);
}

void kgen__table_entry(kgen__table *table, const kgen_entry *entry) {
    const kgen_resources *r = &entry->resources;
    const int32_t numbers[] = {r->vgprs,     r->agprs,          r->sgprs,
                               r->lds_bytes, r->waves_per_simd, r->code_bytes};
    char hex[KGEN_KEY_HEX];
    kgen_key_hex(hex, &entry->key);
    kgen__table_cell(table, "%.*s", SHORT_KEY, hex);
    kgen__table_cell(table, "%s", entry->target);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        kgen__table_number(table, numbers[i]);
    kgen__table_cell(table, "%u", entry->record.compile_ms);
    kgen__table_cell(table, "%s", entry->symbol);
}

typedef struct number_row {
    const char *name;
    int32_t value;
} number_row;

enum { RESOURCES = 12 };

static void resource_rows(number_row rows[RESOURCES], const kgen_resources *r) {
    const number_row all[RESOURCES] = {{"vgprs", r->vgprs},
                                       {"agprs", r->agprs},
                                       {"sgprs", r->sgprs},
                                       {"vgpr_spills", r->vgpr_spills},
                                       {"sgpr_spills", r->sgpr_spills},
                                       {"scratch_bytes", r->scratch_bytes},
                                       {"lds_bytes", r->lds_bytes},
                                       {"workgroup_size", r->workgroup_size},
                                       {"wave_size", r->wave_size},
                                       {"kernarg_bytes", r->kernarg_bytes},
                                       {"code_bytes", r->code_bytes},
                                       {"waves_per_simd", r->waves_per_simd}};
    memcpy(rows, all, sizeof all);
}

json_t *kgen__entry_json(const kgen_entry *entry) {
    number_row rows[RESOURCES];
    char hex[KGEN_KEY_HEX];
    json_t *resources = json_object();
    kgen_key_hex(hex, &entry->key);
    resource_rows(rows, &entry->resources);
    for (size_t i = 0; i < RESOURCES; i++)
        json_object_set_new(resources, rows[i].name,
                            rows[i].value < 0 ? json_null() : json_integer(rows[i].value));
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:s}", "key", hex, "spec", entry->spec,
                     "arch", entry->target, "symbol", entry->symbol, "resources", resources,
                     "compile_ms", (json_int_t)entry->record.compile_ms, "built_unix",
                     (json_int_t)entry->record.unix_time, "toolchain", entry->record.toolchain);
}

/* ---- keys ---------------------------------------------------------------- */

int kgen__is_key_prefix(const char *text) {
    size_t length = strlen(text);
    return length >= 4 && length < KGEN_KEY_HEX && strspn(text, "0123456789abcdef") == length;
}

typedef struct search {
    kgen_key key;
    size_t found;
} search;

static int on_found(const kgen_entry *entry, size_t file_bytes, void *user) {
    search *s = user;
    (void)file_bytes;
    s->key = entry->key;
    return ++s->found > 1;
}

kgen_status kgen__entry_find(kgen_entry **out, kgen_cache *cache, const char *prefix,
                             kgen_error *err) {
    search s = {.found = 0};
    int found = 0;
    if (!kgen__is_key_prefix(prefix))
        return kgen_fail(err, KGEN_E_ARG, "%.70s: 4 to 64 hex digits of a key expected", prefix);
    KGEN_TRY(kgen_cache_list(cache, prefix, on_found, &s, err));
    if (s.found > 1)
        return kgen_fail(err, KGEN_E_ARG, "%s: several keys begin so; give more digits", prefix);
    if (s.found) KGEN_TRY(kgen_cache_get(cache, out, &found, &s.key, err));
    if (!found)
        return kgen_fail(err, KGEN_E_NOT_CACHED, "%s: no entry has this key; see `kgen list`",
                         prefix);
    return KGEN_OK;
}

/* ---- list ---------------------------------------------------------------- */

typedef struct listing {
    kgen__table table;
    json_t *json; /* NULL: the table */
    const kgen__archs *archs;
    size_t count, bytes;
} listing;

static int wanted(const kgen__archs *archs, const char *target) {
    for (size_t i = 0; i < archs->count; i++)
        if (strcmp(archs->list[i]->name, target) == 0) return 1;
    return archs->count == 0;
}

static int on_listed(const kgen_entry *entry, size_t file_bytes, void *user) {
    listing *l = user;
    if (!wanted(l->archs, entry->target)) return 0;
    if (l->json)
        json_array_append_new(l->json, kgen__entry_json(entry));
    else
        kgen__table_entry(&l->table, entry);
    l->count++;
    l->bytes += file_bytes;
    return 0;
}

static int print_listing(listing *l, const char *dir) {
    if (l->json) return kgen__json_print(json_incref(l->json));
    if (l->count) kgen__table_print(&l->table, stdout);
    printf("%s%zu kernels, %.1f kB in %s\n", l->count ? "\n" : "", l->count,
           (double)l->bytes / 1000, dir ? dir : "memory (no readable folder)");
    return 0;
}

int kgen__command_list(int argc, char **argv) {
    const char *cache_dir = NULL;
    kgen__archs archs = {0};
    int json = 0, first, code;
    kgen__syntax s = {.command = "list",
                      .arguments = "[KEYPREFIX]",
                      .about = "Lists the kernels of the cache. WAVES is the occupancy: waves a "
                               "SIMD.",
                      .most = 1};
    kgen__syntax_add(&s, (kgen__option){"arch", 0, "A,B", kgen__read_archs, &archs, 0, 0,
                                        "only these architectures"});
    kgen__syntax_add_cache_dir(&s, &cache_dir);
    kgen__syntax_add_json(&s, &json);
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;

    kgen_error err;
    kgen_cache *cache = NULL;
    listing l = {.json = json ? json_array() : NULL, .archs = &archs};
    kgen__table_entry_heading(&l.table);
    const char *prefix = first < argc ? argv[first] : "";
    kgen_status status = kgen_cache_open(&cache, cache_dir, &err);
    if (status == KGEN_OK && *prefix && strspn(prefix, "0123456789abcdef") != strlen(prefix))
        status = kgen_fail(&err, KGEN_E_ARG, "%.70s: hex digits of a key expected", prefix);
    if (status == KGEN_OK) status = kgen_cache_list(cache, prefix, on_listed, &l, &err);
    code = status == KGEN_OK ? print_listing(&l, kgen_cache_dir(cache)) : kgen__cli_fail(&err);
    json_decref(l.json);
    kgen__table_free(&l.table);
    kgen_cache_close(cache);
    return code;
}

/* ---- inspect ------------------------------------------------------------- */

static void print_entry(const kgen_entry *entry) {
    number_row rows[RESOURCES];
    char hex[KGEN_KEY_HEX], date[32] = "unknown";
    time_t when = (time_t)entry->record.unix_time;
    struct tm utc;
    if (gmtime_r(&when, &utc)) strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S UTC", &utc);
    kgen_key_hex(hex, &entry->key);
    resource_rows(rows, &entry->resources);
    printf("key             %s\nspec            %s\narch            %s\nsymbol          %s\n", hex,
           entry->spec, entry->target, entry->symbol);
    printf("toolchain       %s\ncompiled        %s, in %u ms\n", entry->record.toolchain, date,
           entry->record.compile_ms);
    printf("code object     %zu bytes\nsource          %zu bytes\n", entry->code_size,
           entry->source_size);
    for (size_t i = 0; i < RESOURCES; i++)
        if (rows[i].value < 0)
            printf("%-15s unknown\n", rows[i].name);
        else
            printf("%-15s %d\n", rows[i].name, rows[i].value);
}

static kgen_status write_code(const char *path, const kgen_entry *entry, kgen_error *err) {
    FILE *file = fopen(path, "wb");
    if (!file) return kgen_fail(err, KGEN_E_IO, "%s: cannot write: %s", path, strerror(errno));
    size_t written = fwrite(entry->code, 1, entry->code_size, file);
    if (fclose(file) || written != entry->code_size)
        return kgen_fail(err, KGEN_E_IO, "%s: cannot write: %s", path, strerror(errno));
    return KGEN_OK;
}

/* assembly: NULL when it was not asked for. */
static int print_inspected(const kgen_entry *entry, const char *assembly, int json) {
    if (json) {
        json_t *object = kgen__entry_json(entry);
        if (assembly) json_object_set_new(object, "disassembly", json_string(assembly));
        return kgen__json_print(object);
    }
    if (assembly)
        fputs(assembly, stdout);
    else
        print_entry(entry);
    return 0;
}

int kgen__command_inspect(int argc, char **argv) {
    const char *cache_dir = NULL, *output = NULL;
    char *assembly = NULL;
    int json = 0, disassemble = 0, first, code;
    kgen__syntax s = {.command = "inspect",
                      .arguments = "KEYPREFIX",
                      .about = "Shows everything known about one cached kernel.",
                      .least = 1,
                      .most = 1};
    kgen__syntax_add_cache_dir(&s, &cache_dir);
    kgen__syntax_add(&s, (kgen__option){"output", 'o', "FILE", kgen__read_text, &output, 0, 0,
                                        "write the code object, as the driver takes it"});
    kgen__syntax_add(&s, (kgen__option){"disassemble", 'S', NULL, NULL, &disassemble, 0, 0,
                                        "print the instructions instead (AMD; takes ROCm)"});
    kgen__syntax_add_json(&s, &json);
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;

    kgen_error err;
    kgen_cache *cache = NULL;
    kgen_entry *entry = NULL;
    kgen_status status = kgen_cache_open(&cache, cache_dir, &err);
    if (status == KGEN_OK) status = kgen__entry_find(&entry, cache, argv[first], &err);
    if (status == KGEN_OK && output) status = write_code(output, entry, &err);
    if (status == KGEN_OK && disassemble) status = kgen_disassemble(&assembly, entry, &err);
    code = status == KGEN_OK ? print_inspected(entry, assembly, json) : kgen__cli_fail(&err);
    free(assembly);
    kgen_entry_free(entry);
    kgen_cache_close(cache);
    return code;
}

/* ---- source -------------------------------------------------------------- */

typedef struct source_output {
    int as_digest, json;
} source_output;

static kgen_status print_source_text(const char *spec, const char *arch, const char *text,
                                     size_t size, const source_output *how, kgen_error *err) {
    kgen_key digest; /* as long as a key */
    char hex[KGEN_KEY_HEX];
    kgen_source_digest(digest.bytes, text, size);
    kgen_key_hex(hex, &digest);
    if (how->json) {
        json_t *root = json_pack("{s:s, s:s, s:s}", "spec", spec, "arch", arch, "digest", hex);
        if (!how->as_digest && json_object_set_new(root, "source", json_stringn(text, size)) != 0) {
            json_decref(root);
            return kgen_fail(err, KGEN_E_NOMEM, "source: no memory, or no UTF-8: not for JSON");
        }
        return kgen__json_print(root)
                   ? kgen_fail(err, KGEN_E_IO, "standard output: cannot be written")
                   : KGEN_OK;
    }
    if (how->as_digest)
        puts(hex);
    else
        fwrite(text, 1, size, stdout);
    return KGEN_OK;
}

static kgen_status print_cached_source(const char *prefix, const char *cache_dir,
                                       const source_output *how, kgen_error *err) {
    kgen_cache *cache;
    kgen_entry *entry = NULL;
    KGEN_TRY(kgen_cache_open(&cache, cache_dir, err));
    kgen_status status = kgen__entry_find(&entry, cache, prefix, err);
    if (status == KGEN_OK)
        status = print_source_text(entry->spec, entry->target, entry->source, entry->source_size,
                                   how, err);
    kgen_entry_free(entry);
    kgen_cache_close(cache);
    return status;
}

static kgen_status print_source(const char *line, const kgen_target *target,
                                const source_output *how, kgen_error *err) {
    kgen_spec spec;
    kgen_source source;
    char resolved[KGEN_SPEC_LINE_MAX];
    KGEN_TRY(kgen_spec_parse(&spec, line, err));
    KGEN_TRY(kgen_source_render(&source, &spec, target, err));
    kgen_spec_print(resolved, &source.spec);
    kgen_status status =
        print_source_text(resolved, target->name, source.text, source.size, how, err);
    kgen_source_free(&source);
    return status;
}

int kgen__command_source(int argc, char **argv) {
    const char *cache_dir = NULL;
    kgen__archs archs = {0};
    int first, code;
    source_output how = {0};
    kgen__syntax s = {.command = "source",
                      .arguments = "SPEC|KEYPREFIX",
                      .about = "Prints exactly the bytes that are compiled.",
                      .least = 1,
                      .most = 1};
    kgen__syntax_add(&s, (kgen__option){"arch", 0, "A", kgen__read_archs, &archs, 0, 0,
                                        "architecture (gfx942)"});
    kgen__syntax_add(&s, (kgen__option){"digest", 0, NULL, NULL, &how.as_digest, 0, 0,
                                        "print what rows of the tuning database say of them"});
    kgen__syntax_add_cache_dir(&s, &cache_dir);
    kgen__syntax_add_json(&s, &how.json);
    if (kgen__syntax_parse(&s, argc, argv, &first, &code) == KGEN__STOP) return code;
    if (archs.count > 1) return kgen__cli_usage("source", "one --arch at a time");
    kgen__archs_default(&archs);

    kgen_error err;
    kgen_status status = kgen__is_key_prefix(argv[first])
                             ? print_cached_source(argv[first], cache_dir, &how, &err)
                             : print_source(argv[first], archs.list[0], &how, &err);
    return status == KGEN_OK ? 0 : kgen__cli_fail(&err);
}
