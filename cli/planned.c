/* Which kernels of a manifest a device can run, and why not the others. */
#include <stdlib.h>

#include "cli.h"

typedef struct planned {
    kgen_cache *cache;
    const kgen_target *target;
    size_t there, generic, elsewhere; /* elsewhere: planned for other architectures only */
    json_t *missing, *refused;        /* refused: no build helps */
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

static void name_it(json_t *list, const kgen_spec *spec, const kgen_error *why) {
    char line[KGEN_SPEC_LINE_MAX];
    kgen_spec_print(line, spec);
    json_array_append_new(list, json_pack("{s:s, s:s}", "spec", line, "why", why->text));
}

static void look_at(planned *p, const kgen_spec *spec, int is_mine) {
    const kgen_target *generic = kgen_target_generic(p->target);
    kgen_spec resolved;
    kgen_error why;
    if (kgen_spec_resolve(&resolved, spec, p->target, &why) != KGEN_OK)
        name_it(p->refused, spec, &why);
    else if (!is_mine)
        p->elsewhere++;
    else if (look_up(p->cache, spec, p->target, &why) == KGEN_OK)
        p->there++;
    else if (generic && look_up(p->cache, spec, generic, NULL) == KGEN_OK)
        p->generic++;
    else
        name_it(p->missing, spec, &why);
}

/* Those of its architecture and of its family, or the others. */
static kgen_status pick(kgen__jobs *out, const kgen__jobs *all, const planned *p, int mine,
                        kgen_error *err) {
    const kgen_target *generic = kgen_target_generic(p->target);
    kgen_status status = KGEN_OK;
    for (size_t i = 0; i < all->count && status == KGEN_OK; i++) {
        const kgen_job *job = &all->list[i];
        if ((job->target == p->target || job->target == generic) == mine)
            status = kgen__jobs_add(out, &job->spec, p->target, err);
    }
    return status;
}

/* A kernel counts once, for whatever architectures it is planned. */
static kgen_status look_at_lines(planned *p, const char *manifest, kgen_error *err) {
    const kgen__archs own = {.list = {p->target}, .count = 1};
    kgen__jobs all = {.unchecked = 1}, picked = {.unchecked = 1};
    kgen_status status = kgen__jobs_add_manifest(&all, manifest, &own, err);
    if (status == KGEN_OK) status = pick(&picked, &all, p, 1, err);
    size_t mine = picked.count;
    if (status == KGEN_OK) status = pick(&picked, &all, p, 0, err);
    for (size_t i = 0; i < picked.count && status == KGEN_OK; i++)
        look_at(p, &picked.list[i].spec, i < mine);
    kgen__jobs_free(&all);
    kgen__jobs_free(&picked);
    return status;
}

json_t *kgen__planned_on(kgen_cache *cache, const char *manifest, const char *device,
                         const char *arch) {
    planned p = {.cache = cache, .missing = json_array(), .refused = json_array()};
    kgen_error err;
    kgen_status status = kgen_target_find(&p.target, arch, &err);
    if (status == KGEN_OK) status = look_at_lines(&p, manifest, &err);
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:s?}", "device", device, "arch", arch,
                     "there", (json_int_t)p.there, "generic", (json_int_t)p.generic, "elsewhere",
                     (json_int_t)p.elsewhere, "missing", p.missing, "refused", p.refused, "failed",
                     status == KGEN_OK ? NULL : err.text);
}

static long number_of(const json_t *row, const char *key) {
    return (long)json_integer_value(json_object_get(row, key));
}

static void print_kernels(const json_t *list, const char *what) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *kernel = json_array_get(list, i);
        printf("             %s: %s\n               %s\n", what,
               json_string_value(json_object_get(kernel, "spec")),
               json_string_value(json_object_get(kernel, "why")));
    }
}

static void print_counts(const json_t *row, const char *arch) {
    const long there = number_of(row, "there"), generic = number_of(row, "generic");
    const long elsewhere = number_of(row, "elsewhere");
    const size_t missing = json_array_size(json_object_get(row, "missing"));
    const size_t refused = json_array_size(json_object_get(row, "refused"));
    if (!there && !generic && !missing && !refused)
        printf("no line is for %s", arch);
    else
        printf("%s: %ld there, %ld of its family, %zu missing", arch, there, generic, missing);
    if (refused) printf(", %zu it cannot run", refused);
    if (elsewhere) printf("; %ld planned for other architectures alone could be built", elsewhere);
    printf("\n");
}

void kgen__planned_print(const json_t *list, const char *manifest) {
    printf("\nkernels of %s\n", manifest);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const char *arch = json_string_value(json_object_get(row, "arch"));
        const char *failed = json_string_value(json_object_get(row, "failed"));
        const json_t *missing = json_object_get(row, "missing");
        printf("  %-10s ", json_string_value(json_object_get(row, "device")));
        if (failed)
            printf("%s\n", failed);
        else
            print_counts(row, arch);
        print_kernels(json_object_get(row, "refused"), "cannot run");
        print_kernels(missing, "missing");
        if (json_array_size(missing))
            printf("             build them: kgen build --manifest %s --arch %s\n", manifest, arch);
    }
}
