/* Which kernels of a manifest a device can run, and why not the others. */
#include <stdlib.h>

#include "cli.h"

typedef struct planned {
    kgen_cache *cache;
    const kgen_target *target;
    size_t there, generic;
    json_t *missing;
} planned;

/* As a machine without a compiler finds it. */
static kgen_status look_up(kgen_cache *cache, const kgen_spec *spec, const kgen_target *target,
                           kgen_error *why) {
    const kgen_build_options options = {.size = sizeof options, .offline = 1};
    const kgen_job job = {*spec, target};
    kgen_job_result result;
    kgen_status status = kgen_build(cache, &job, 1, &options, &result, why);
    kgen_entry_free(result.entry);
    return status;
}

static void look_at(planned *p, const kgen_spec *spec) {
    const kgen_target *generic = kgen_target_generic(p->target);
    char line[KGEN_SPEC_LINE_MAX];
    kgen_error why;
    kgen_status status = kgen_spec_validate(spec, p->target, &why);
    if (status == KGEN_OK) status = look_up(p->cache, spec, p->target, &why);
    if (status == KGEN_OK) {
        p->there++;
    } else if (generic && look_up(p->cache, spec, generic, NULL) == KGEN_OK) {
        p->generic++;
    } else {
        kgen_spec_print(line, spec);
        json_array_append_new(p->missing, json_pack("{s:s, s:s}", "spec", line, "why", why.text));
    }
}

/* Those of its architecture, and of its family. */
static kgen_status look_at_lines(planned *p, const char *manifest, kgen_error *err) {
    const kgen__archs own = {.list = {p->target}, .count = 1};
    const kgen_target *generic = kgen_target_generic(p->target);
    kgen__jobs all = {0}, mine = {0};
    kgen_status status = kgen__jobs_add_manifest(&all, manifest, &own, err);
    for (size_t i = 0; i < all.count && status == KGEN_OK; i++)
        if (all.list[i].target == p->target || all.list[i].target == generic)
            status = kgen__jobs_add(&mine, &all.list[i].spec, p->target, err);
    for (size_t i = 0; i < mine.count && status == KGEN_OK; i++) look_at(p, &mine.list[i].spec);
    kgen__jobs_free(&all);
    kgen__jobs_free(&mine);
    return status;
}

json_t *kgen__planned_on(kgen_cache *cache, const char *manifest, const char *device,
                         const char *arch) {
    planned p = {.cache = cache, .missing = json_array()};
    kgen_error err;
    kgen_status status = kgen_target_find(&p.target, arch, &err);
    if (status == KGEN_OK) status = look_at_lines(&p, manifest, &err);
    return json_pack("{s:s, s:s, s:I, s:I, s:o, s:s?}", "device", device, "arch", arch, "there",
                     (json_int_t)p.there, "generic", (json_int_t)p.generic, "missing", p.missing,
                     "failed", status == KGEN_OK ? NULL : err.text);
}

static void print_missing(const json_t *row, const char *arch, const char *manifest) {
    const json_t *missing = json_object_get(row, "missing");
    for (size_t i = 0; i < json_array_size(missing); i++) {
        const json_t *kernel = json_array_get(missing, i);
        printf("             missing: %s\n               %s\n",
               json_string_value(json_object_get(kernel, "spec")),
               json_string_value(json_object_get(kernel, "why")));
    }
    if (json_array_size(missing))
        printf("             build them: kgen build --manifest %s --arch %s\n", manifest, arch);
}

void kgen__planned_print(const json_t *list, const char *manifest) {
    printf("\nkernels of %s\n", manifest);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const char *arch = json_string_value(json_object_get(row, "arch"));
        const char *failed = json_string_value(json_object_get(row, "failed"));
        long there = (long)json_integer_value(json_object_get(row, "there"));
        long generic = (long)json_integer_value(json_object_get(row, "generic"));
        size_t missing = json_array_size(json_object_get(row, "missing"));
        printf("  %-10s ", json_string_value(json_object_get(row, "device")));
        if (failed)
            printf("%s\n", failed);
        else if (!there && !generic && !missing)
            printf("no line is for %s\n", arch);
        else
            printf("%s: %ld there, %ld of its family, %zu missing\n", arch, there, generic,
                   missing);
        print_missing(row, arch, manifest);
    }
}
