/* kgen report --diff A B: what became of each kernel between two bundles or cache folders. */
#include <stdlib.h>
#include <string.h>

/* A failed allocation in uthash leaves `lost`, and is no exit. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element) ((element)->lost = 1)
#include <uthash.h>

#include "cli.h"

enum { NAME_MAX_BYTES = KGEN_SPEC_LINE_MAX + 40 };

typedef struct side {
    int there;
    kgen_resources resources;
    uint64_t unix_time; /* of several the last */
    size_t code_size;
} side;

typedef struct kernel {
    char name[NAME_MAX_BYTES]; /* SPEC @ARCH */
    side sides[2];
    int lost;
    UT_hash_handle hh;
} kernel;

typedef struct diff {
    kernel *kernels;
    int side, no_memory;
    json_t *only[2], *changed;
    size_t same;
} diff;

static int add_kernel(const kgen_entry *entry, void *user) {
    diff *d = user;
    char name[NAME_MAX_BYTES];
    kernel *k = NULL;
    snprintf(name, sizeof name, "%s @%s", entry->spec, entry->target);
    HASH_FIND_STR(d->kernels, name, k);
    if (!k) {
        k = calloc(1, sizeof *k);
        if (!k) return d->no_memory = 1;
        memcpy(k->name, name, sizeof name);
        HASH_ADD_STR(d->kernels, name, k);
        if (k->lost) {
            free(k);
            return d->no_memory = 1;
        }
    }
    side *s = &k->sides[d->side];
    if (s->there && s->unix_time > entry->record.unix_time) return 0;
    *s = (side){1, entry->resources, entry->record.unix_time, entry->code_size};
    return 0;
}

static const struct {
    const char *name;
    size_t offset;
} fields[] = {
#define FIELD(name) {#name, offsetof(kgen_resources, name)}
    FIELD(vgprs),         FIELD(agprs),          FIELD(sgprs),         FIELD(vgpr_spills),
    FIELD(sgpr_spills),   FIELD(scratch_bytes),  FIELD(lds_bytes),     FIELD(code_bytes),
    FIELD(kernarg_bytes), FIELD(workgroup_size), FIELD(waves_per_simd)
#undef FIELD
};

static int value_of(const side *s, size_t field) {
    int32_t value;
    memcpy(&value, (const char *)&s->resources + fields[field].offset, sizeof value);
    return value;
}

static void compare(diff *d, const kernel *k) {
    json_t *differences = json_object();
    const side *a = &k->sides[0], *b = &k->sides[1];
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (value_of(a, i) != value_of(b, i))
            json_object_set_new(differences, fields[i].name,
                                json_pack("[i, i]", value_of(a, i), value_of(b, i)));
    if (json_object_size(differences))
        json_array_append_new(
            d->changed, json_pack("{s:s, s:O}", "kernel", k->name, "differences", differences));
    else
        d->same++;
    json_decref(differences);
}

static int by_name(const kernel *a, const kernel *b) { return strcmp(a->name, b->name); }

static kgen_status read_side(diff *d, int which, const char *path, kgen_error *err) {
    d->side = which;
    KGEN_TRY(kgen_bundle_each(path, add_kernel, d, err));
    return d->no_memory ? kgen_fail(err, KGEN_E_NOMEM, "%s: no memory for its kernels", path)
                        : KGEN_OK;
}

static void print_text(const diff *d, char **paths) {
    for (int which = 0; which < 2; which++)
        for (size_t i = 0; i < json_array_size(d->only[which]); i++)
            printf("%c %s\n", which ? '+' : '-',
                   json_string_value(json_array_get(d->only[which], i)));
    for (size_t i = 0; i < json_array_size(d->changed); i++) {
        json_t *row = json_array_get(d->changed, i), *pair;
        const char *field;
        printf("! %s\n ", json_string_value(json_object_get(row, "kernel")));
        json_object_foreach(json_object_get(row, "differences"), field, pair)
            printf(" %s %lld -> %lld", field,
                   (long long)json_integer_value(json_array_get(pair, 0)),
                   (long long)json_integer_value(json_array_get(pair, 1)));
        printf("\n");
    }
    printf("%zu only in %s, %zu only in %s, %zu changed, %zu the same\n",
           json_array_size(d->only[0]), paths[0], json_array_size(d->only[1]), paths[1],
           json_array_size(d->changed), d->same);
}

static int print(const diff *d, char **paths, int json) {
    if (json)
        return kgen__json_print(json_pack("{s:O, s:O, s:O, s:I}", "only_first", d->only[0],
                                          "only_second", d->only[1], "changed", d->changed, "same",
                                          (json_int_t)d->same));
    print_text(d, paths);
    return 0;
}

int kgen__report_diff(char **paths, int json) {
    diff d = {.only = {json_array(), json_array()}, .changed = json_array()};
    kernel *k, *next;
    kgen_error err;
    kgen_status status = read_side(&d, 0, paths[0], &err);
    if (status == KGEN_OK) status = read_side(&d, 1, paths[1], &err);
    HASH_SORT(d.kernels, by_name);
    HASH_ITER(hh, d.kernels, k, next) {
        if (k->sides[0].there && k->sides[1].there)
            compare(&d, k);
        else
            json_array_append_new(d.only[k->sides[1].there], json_string(k->name));
        HASH_DEL(d.kernels, k);
        free(k);
    }
    int code = status == KGEN_OK ? print(&d, paths, json) : kgen__cli_fail(&err);
    json_decref(d.only[0]);
    json_decref(d.only[1]);
    json_decref(d.changed);
    return code;
}
