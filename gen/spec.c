/* The spec line: parse, print, validate, resolve. All loops over the family's
 * parameter table. */
#include <kgen/spec.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "buf.h"
#include "family.h"

enum { KEY_MAX = 24, VALUE_MAX = 24, ALLOWED_MAX = 512 };

/* clang-format off */
static const struct {
    const char *name;
    int size;
} dtypes[] = {
    [KGEN_DTYPE_NONE] = {"none", 0}, [KGEN_DTYPE_BF16] = {"bf16", 2},
    [KGEN_DTYPE_FP16] = {"fp16", 2},       [KGEN_DTYPE_E4M3FN] = {"e4m3fn", 1},
    [KGEN_DTYPE_E4M3FNUZ] = {"e4m3fnuz", 1}, [KGEN_DTYPE_E5M2] = {"e5m2", 1},
    [KGEN_DTYPE_FP8] = {"fp8", 1},         [KGEN_DTYPE_F32] = {"f32", 4},
    [KGEN_DTYPE_I32] = {"i32", 4},         [KGEN_DTYPE_I64] = {"i64", 8},
    [KGEN_DTYPE_U8] = {"u8", 1},           [KGEN_DTYPE_U16] = {"u16", 2},
    [KGEN_DTYPE_I8] = {"i8", 1},           [KGEN_DTYPE_I4] = {"i4", 1},
};
/* clang-format on */

_Static_assert(sizeof dtypes / sizeof dtypes[0] == KGEN_DTYPE_COUNT, "a kgen_dtype has no row");

static const char *const layouts[] = {"none",    "nhd",         "hnd",  "shuffle",
                                      "xpacked", "interleaved", "flat", "presplit",
                                      "vk",      "kv",          "sd",   "ds"};

_Static_assert(sizeof layouts / sizeof layouts[0] == KGEN_LAYOUT_COUNT,
               "a kgen_layout has no name");

const char *kgen_dtype_name(kgen_dtype dtype) {
    return (unsigned)dtype < KGEN_DTYPE_COUNT ? dtypes[dtype].name : "unknown";
}

int kgen_dtype_size(kgen_dtype dtype) {
    return (unsigned)dtype < KGEN_DTYPE_COUNT ? dtypes[dtype].size : 0;
}

int kgen_dtype_values(kgen_dtype dtype) { return dtype == KGEN_DTYPE_I4 ? 2 : 1; }

const char *kgen_layout_name(kgen_layout layout) {
    return (unsigned)layout < KGEN_LAYOUT_COUNT ? layouts[layout] : "unknown";
}

/* --- numbers and symbols ------------------------------------------------ */

static int in_domain(const kgen_domain *domain, int32_t value) {
    for (int32_t i = 0; i < domain->list_count; i++)
        if (domain->list[i] == value) return 1;
    return domain->step && value >= domain->min && value <= domain->max &&
           (value - domain->min) % domain->step == 0;
}

static int32_t clamp_to_step(const kgen_domain *domain, int64_t value) {
    int64_t v = value < domain->min ? domain->min : value > domain->max ? domain->max : value;
    int64_t steps = (v - domain->min + domain->step / 2) / domain->step;
    if (domain->min + steps * domain->step > domain->max) steps--;
    return (int32_t)(domain->min + steps * domain->step);
}

static int32_t nearest(const kgen_domain *domain, int64_t value) {
    int32_t best = domain->step ? clamp_to_step(domain, value) : domain->list[0];
    for (int32_t i = 0; i < domain->list_count; i++)
        if (llabs(domain->list[i] - value) < llabs(best - value)) best = domain->list[i];
    return best;
}

static const char *symbol_of(const kgen_param *param, int32_t value) {
    for (const kgen_symbol *s = param->symbols; s->name; s++)
        if (s->value == value) return s->name;
    return NULL;
}

/* "nhd, hnd or 16..1024 in steps of 16" */
static void describe(char *out, size_t size, const kgen_param *param) {
    const kgen_domain *domain = param->domain;
    size_t used = 0;
    out[0] = 0;
#define APPEND(...)                                                                      \
    do {                                                                                 \
        if (used < size) used += (size_t)snprintf(out + used, size - used, __VA_ARGS__); \
    } while (0)
    for (const kgen_symbol *s = param->symbols; s->name; s++)
        APPEND("%s%s", used ? ", " : "", s->name);
    for (int32_t i = 0; i < domain->list_count; i++)
        APPEND("%s%d", used ? ", " : "", domain->list[i]);
    if (domain->step == 1)
        APPEND("%s%d..%d", used ? ", " : "", domain->min, domain->max);
    else if (domain->step)
        APPEND("%s%d..%d in steps of %d", used ? ", " : "", domain->min, domain->max, domain->step);
#undef APPEND
}

static int parse_int(const char *text, int64_t *out) {
    char *end;
    if (!*text || strlen(text) > 18) return 0;
    *out = strtoll(text, &end, 10);
    return !*end && ((*text >= '0' && *text <= '9') || *text == '-');
}

static kgen_status parse_value(const kgen_param *param, const char *text, int32_t *out,
                               kgen_error *err) {
    int64_t number;
    char allowed[ALLOWED_MAX];
    for (const kgen_symbol *s = param->symbols; s->name; s++) {
        if (strcmp(s->name, text) == 0) {
            *out = s->value;
            return KGEN_OK;
        }
    }
    describe(allowed, sizeof allowed, param);
    if (!parse_int(text, &number) || (!param->domain->step && !param->domain->list_count))
        return kgen_fail(err, KGEN_E_SPEC, "%s=%s: unknown value; allowed: %s", param->key, text,
                         allowed);
    if (number >= INT32_MIN && number <= INT32_MAX && in_domain(param->domain, (int32_t)number)) {
        *out = (int32_t)number;
        return KGEN_OK;
    }
    return kgen_fail(err, KGEN_E_SPEC, "%s=%s: out of bounds; nearest is %d (allowed: %s)",
                     param->key, text, nearest(param->domain, number), allowed);
}

/* --- parse -------------------------------------------------------------- */

/* "attn, gdn" */
static void list_families(char *out, size_t size) {
    size_t used = 0;
    for (int i = 0; i < KGEN_FAMILY_COUNT && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "",
                                 kgen_family_name((kgen_family_id)i));
}

static int find_name(const char *name, size_t length, kgen_family_id *id) {
    for (int i = 0; i < KGEN_FAMILY_COUNT; i++) {
        const char *known = kgen_family_name((kgen_family_id)i);
        if (strlen(known) != length || strncmp(known, name, length) != 0) continue;
        *id = (kgen_family_id)i;
        return 1;
    }
    return 0;
}

static kgen_status fail_family(const char *name, size_t length, kgen_error *err) {
    char known[128];
    list_families(known, sizeof known);
    return kgen_fail(err, KGEN_E_SPEC, "family=%.*s: unknown; known are %s",
                     length > 40 ? 40 : (int)length, name, known);
}

kgen_status kgen_family_find(kgen_family_id *out, const char *name, kgen_error *err) {
    size_t length = strlen(name);
    return find_name(name, length, out) ? KGEN_OK : fail_family(name, length, err);
}

static kgen_status find_family(const char *line, kgen_family_id *id, const char **rest,
                               kgen_error *err) {
    size_t length = strcspn(line, ":");
    if (!find_name(line, length, id)) return fail_family(line, length, err);
    *rest = line + length + (line[length] == ':');
    return KGEN_OK;
}

static int copy_field(char *out, size_t size, const char *text, size_t length) {
    if (length >= size) return 0;
    memcpy(out, text, length);
    out[length] = 0;
    return 1;
}

/* Parses "key=value" of `length` bytes; `seen` has one bit a parameter. */
static kgen_status parse_pair(kgen_spec *spec, const char *pair, size_t length, uint64_t *seen,
                              kgen_error *err) {
    const kgen__family *family = kgen__family_of(spec->family);
    const char *name = kgen_family_name(spec->family);
    char key[KEY_MAX], value[VALUE_MAX];
    const char *equals = memchr(pair, '=', length);
    int shown = length > 40 ? 40 : (int)length;
    if (!equals || !copy_field(key, sizeof key, pair, (size_t)(equals - pair)) ||
        !copy_field(value, sizeof value, equals + 1, length - (size_t)(equals - pair) - 1))
        return kgen_fail(err, KGEN_E_SPEC, "'%.*s': key=value expected", shown, pair);
    for (size_t i = 0; i < family->param_count; i++) {
        const kgen_param *param = &family->params[i];
        int32_t number = 0;
        if (strcmp(param->key, key) != 0) continue;
        if (*seen >> i & 1) return kgen_fail(err, KGEN_E_SPEC, "%s=%s: given twice", key, value);
        KGEN_TRY(parse_value(param, value, &number, err));
        *seen |= (uint64_t)1 << i;
        kgen_param_set(spec, param, number);
        return KGEN_OK;
    }
    return kgen_fail(err, KGEN_E_SPEC, "%s=%s: family %s has no such key; see `kgen explain %s`",
                     key, value, name, name);
}

/* Messages repeat parts of the line: they must stay one line. */
static kgen_status check_printable(const char *line, kgen_error *err) {
    for (const char *c = line; *c; c++)
        if (*c < ' ' || *c > '~')
            return kgen_fail(err, KGEN_E_SPEC,
                             "spec line: byte %d is 0x%02x, printable ASCII expected",
                             (int)(c - line), (unsigned char)*c);
    return KGEN_OK;
}

kgen_status kgen_spec_parse(kgen_spec *out, const char *line, kgen_error *err) {
    kgen_spec spec;
    const char *rest = "";
    uint64_t seen = 0;
    memset(&spec, 0, sizeof spec);
    if (strlen(line) >= KGEN_SPEC_LINE_MAX)
        return kgen_fail(err, KGEN_E_SPEC, "spec line: %zu bytes, at most %d", strlen(line),
                         KGEN_SPEC_LINE_MAX - 1);
    KGEN_TRY(check_printable(line, err));
    KGEN_TRY(find_family(line, &spec.family, &rest, err));
    const kgen__family *family = kgen__family_of(spec.family);
    for (size_t i = 0; i < family->param_count; i++)
        kgen_param_set(&spec, &family->params[i], family->params[i].initial);
    for (int more = *rest != 0; more;) {
        size_t length = strcspn(rest, ",");
        KGEN_TRY(parse_pair(&spec, rest, length, &seen, err));
        more = rest[length] == ',';
        rest += length + (size_t)more;
    }
    KGEN_TRY(kgen_spec_validate(&spec, NULL, err));
    *out = spec;
    return KGEN_OK;
}

/* --- print, validate, resolve ------------------------------------------- */

void kgen_spec_print(char out[KGEN_SPEC_LINE_MAX], const kgen_spec *spec) {
    const kgen__family *family = kgen__family_of(spec->family);
    size_t used = (size_t)snprintf(out, KGEN_SPEC_LINE_MAX, "%s:", kgen_family_name(spec->family));
    char separator[2] = "";
    for (size_t i = 0; family && i < family->param_count; i++) {
        const kgen_param *param = &family->params[i];
        int32_t value = kgen_param_get(spec, param);
        const char *symbol = symbol_of(param, value);
        if (param->print == KGEN_PRINT_DIFFERS && value == param->initial) continue;
        if (used >= KGEN_SPEC_LINE_MAX) return;
        used += symbol ? (size_t)snprintf(out + used, KGEN_SPEC_LINE_MAX - used, "%s%s=%s",
                                          separator, param->key, symbol)
                       : (size_t)snprintf(out + used, KGEN_SPEC_LINE_MAX - used, "%s%s=%d",
                                          separator, param->key, value);
        separator[0] = ',';
    }
}

/* A value as whoever set the field knows it: types by their names, also those that the
 * parameter has not. */
static void print_value(char out[16], const kgen_param *param, int32_t value) {
    const char *bf16 = symbol_of(param, KGEN_DTYPE_BF16);
    int is_type = bf16 && !strcmp(bf16, kgen_dtype_name(KGEN_DTYPE_BF16));
    if (is_type && value > KGEN_DTYPE_NONE && value < KGEN_DTYPE_COUNT)
        snprintf(out, 16, "%s", kgen_dtype_name((kgen_dtype)value));
    else
        snprintf(out, 16, "%d", value);
}

kgen_status kgen_spec_validate(const kgen_spec *spec, const kgen_target *target, kgen_error *err) {
    const kgen__family *family = kgen__family_of(spec->family);
    if (!family) return kgen_fail(err, KGEN_E_SPEC, "family=%d: unknown", (int)spec->family);
    for (size_t i = 0; i < family->param_count; i++) {
        const kgen_param *param = &family->params[i];
        int32_t value = kgen_param_get(spec, param);
        char allowed[ALLOWED_MAX], said[16];
        if (symbol_of(param, value) || in_domain(param->domain, value)) continue;
        describe(allowed, sizeof allowed, param);
        if (value == param->initial)
            return kgen_fail(err, KGEN_E_SPEC, "%s: missing; give one of %s", param->key, allowed);
        print_value(said, param, value);
        return kgen_fail(err, KGEN_E_SPEC, "%s=%s: out of bounds (allowed: %s)", param->key, said,
                         allowed);
    }
    return family->applicable(spec, target, err);
}

kgen_status kgen_spec_resolve(kgen_spec *out, const kgen_spec *spec, const kgen_target *target,
                              kgen_error *err) {
    kgen_spec resolved = *spec;
    KGEN_TRY(kgen_spec_validate(spec, target, err));
    kgen__family_of(spec->family)->defaults(&resolved, target);
    KGEN_TRY(kgen_spec_validate(&resolved, target, err));
    *out = resolved;
    return KGEN_OK;
}

/* Ten hex digits of the line: a family's readable part leaves keys out. */
static void append_digest(char out[KGEN_SYMBOL_MAX], const kgen_spec *spec) {
    enum { BYTES = 5, TAIL = 2 * BYTES + 2 };
    char line[KGEN_SPEC_LINE_MAX];
    unsigned char digest[crypto_generichash_BYTES_MIN];
    kgen_spec_print(line, spec);
    crypto_generichash(digest, sizeof digest, (const unsigned char *)line, strlen(line), NULL, 0);
    out[KGEN_SYMBOL_MAX - TAIL] = 0;
    size_t used = strlen(out);
    out[used++] = '_';
    sodium_bin2hex(out + used, TAIL - 1, digest, BYTES);
}

void kgen_spec_symbol(char out[KGEN_SYMBOL_MAX], const kgen_spec *spec) {
    const kgen__family *family = kgen__family_of(spec->family);
    out[0] = 0;
    if (!family) return;
    family->symbol(out, spec);
    append_digest(out, spec);
}

int32_t kgen_spec_lanes(const kgen_spec *resolved, const kgen_target *target) {
    const kgen__family *family = kgen__family_of(resolved->family);
    return family ? family->launch_shape(resolved, target) : 0;
}

int32_t kgen_spec_occupancy(const kgen_spec *resolved) {
    const kgen__family *family = kgen__family_of(resolved->family);
    return family ? family->occupancy(resolved) : 0;
}

int32_t kgen_spec_cluster(const kgen_spec *resolved) {
    const kgen__family *family = kgen__family_of(resolved->family);
    return family && family->cluster ? family->cluster(resolved) : 0;
}

/* --- two specs, and no tuning ------------------------------------------- */

static int differ(const kgen_spec *a, const kgen_spec *b, int tuning) {
    int params = kgen_param_count(a->family), count = 0;
    if (a->family != b->family) return params + 1;
    for (int i = 0; i < params; i++) {
        const kgen_param *param = kgen_param_at(a->family, i);
        if (param->role == KGEN_ROLE_TUNE && !tuning) continue;
        count += kgen_param_get(a, param) != kgen_param_get(b, param);
    }
    return count;
}

int kgen_spec_difference(const kgen_spec *a, const kgen_spec *b) { return differ(a, b, 1); }
int kgen_spec_equal(const kgen_spec *a, const kgen_spec *b) { return differ(a, b, 1) == 0; }
int kgen_spec_same_shape(const kgen_spec *a, const kgen_spec *b) { return differ(a, b, 0) == 0; }

void kgen_spec_open_tuning(kgen_spec *spec) {
    for (int i = 0; i < kgen_param_count(spec->family); i++) {
        const kgen_param *param = kgen_param_at(spec->family, i);
        if (param->role == KGEN_ROLE_TUNE) kgen_param_set(spec, param, param->initial);
    }
}

/* --- help --------------------------------------------------------------- */

kgen_status kgen_spec_help(char **out, kgen_family_id id, kgen_error *err) {
    static const char *const roles[] = {[KGEN_ROLE_SHAPE] = "shape", [KGEN_ROLE_TUNE] = "tuning"};
    const kgen__family *family = kgen__family_of(id);
    kgen__buf buf = {0};
    if (!family) return kgen_fail(err, KGEN_E_SPEC, "family=%d: unknown", (int)id);
    for (size_t i = 0; i < family->param_count; i++) {
        const kgen_param *param = &family->params[i];
        const char *initial = symbol_of(param, param->initial);
        char allowed[ALLOWED_MAX], number[16];
        describe(allowed, sizeof allowed, param);
        snprintf(number, sizeof number, "%d", param->initial);
        kgen__buf_printf(&buf, "%-8s %-6s default %-8s %s\n         values: %s\n", param->key,
                         roles[param->role], initial ? initial : number, param->doc, allowed);
    }
    return kgen__buf_take(&buf, out, NULL, err);
}
