/* Reads of config.json fields: a name that is missing, null or of another type has
 * an answer or an error that names it. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_MAX_BYTES = 4 << 20 };

static void note(const kgen__config *c, const char *key) {
    kgen__fields_read *read = c->read;
    for (size_t i = 0; read && i < read->count; i++)
        if (strcmp(read->names[i], key) == 0) return;
    if (read && read->count < KGEN__FIELDS_READ_MAX) read->names[read->count++] = key;
}

json_t *kgen__config_field(const kgen__config *c, const char *key) {
    json_t *value = json_object_get(c->text, key);
    note(c, key);
    return json_is_null(value) ? NULL : value;
}

int kgen__config_given(const kgen__config *c, const char *key) {
    note(c, key);
    return json_object_get(c->text, key) != NULL;
}

json_t *kgen__config_outer(const kgen__config *c, const char *key) {
    json_t *value = kgen__config_field(c, key);
    return value ? value : json_object_get(c->root, key);
}

kgen_status kgen__config_wrong(const kgen__config *c, const char *key, const char *expected) {
    return kgen_fail(c->err, KGEN_E_CONFIG, "%s: %s expected", key, expected);
}

kgen_status kgen__config_missing(const kgen__config *c, const char *key, const char *why) {
    return kgen_fail(c->err, KGEN_E_CONFIG, "%s: missing%s", key, why);
}

kgen_status kgen__config_int(const kgen__config *c, const char *key, int64_t low, int64_t high,
                             int64_t *out) {
    json_t *value = kgen__config_field(c, key);
    if (!value) return KGEN_OK;
    if (!json_is_integer(value)) return kgen__config_wrong(c, key, "an integer");
    int64_t number = json_integer_value(value);
    if (number < low || number > high)
        return kgen_fail(c->err, KGEN_E_CONFIG, "%s=%lld: must be %lld to %lld", key,
                         (long long)number, (long long)low, (long long)high);
    *out = number;
    return KGEN_OK;
}

kgen_status kgen__config_number(const kgen__config *c, const char *key, double low, double high,
                                double *out) {
    json_t *value = kgen__config_field(c, key);
    if (!value) return KGEN_OK;
    if (!json_is_number(value)) return kgen__config_wrong(c, key, "a number");
    double number = json_number_value(value);
    if (!isfinite(number) || number < low || number > high)
        return kgen_fail(c->err, KGEN_E_CONFIG, "%s=%g: must be %g to %g", key, number, low, high);
    *out = number;
    return KGEN_OK;
}

kgen_status kgen__config_bool(const kgen__config *c, const char *key, int *out) {
    json_t *value = kgen__config_field(c, key);
    if (!value) return KGEN_OK;
    if (!json_is_boolean(value)) return kgen__config_wrong(c, key, "true or false");
    *out = json_is_true(value);
    return KGEN_OK;
}

static int is_name(const char *s, size_t length) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    return length > 0 && strlen(s) == length && strspn(s, allowed) == length;
}

kgen_status kgen__config_name(const kgen__config *c, json_t *value, const char *key, char *out,
                              size_t size) {
    out[0] = 0;
    if (!value || json_is_null(value)) return KGEN_OK;
    size_t length = json_string_length(value);
    if (!json_is_string(value) || length >= size || !is_name(json_string_value(value), length))
        return kgen_fail(c->err, KGEN_E_CONFIG, "%s: a name of at most %zu letters, digits, _ - .",
                         key, size - 1);
    memcpy(out, json_string_value(value), length + 1);
    return KGEN_OK;
}

kgen_status kgen__config_list(const kgen__config *c, const char *key, int64_t layers,
                              json_t **out) {
    json_t *list = kgen__config_field(c, key);
    *out = NULL;
    if (!list) return KGEN_OK;
    if (!json_is_array(list)) return kgen__config_wrong(c, key, "a list");
    if (json_array_size(list) != (size_t)layers)
        return kgen_fail(c->err, KGEN_E_CONFIG, "%s: %zu entries, num_hidden_layers=%lld", key,
                         json_array_size(list), (long long)layers);
    *out = list;
    return KGEN_OK;
}

kgen_status kgen__config_part(const kgen__config *c, const char *key, kgen__config *out,
                              int *found) {
    json_t *part = kgen__config_field(c, key);
    *found = part != NULL;
    if (!part) return KGEN_OK;
    if (!json_is_object(part)) return kgen__config_wrong(c, key, "an object");
    *out = (kgen__config){c->root, part, NULL, c->err};
    return KGEN_OK;
}

/* The parser quotes the input: keep only what a terminal may be shown. */
static kgen_status parse_error(const json_error_t *from, kgen_error *err) {
    char text[sizeof from->text];
    size_t used = 0;
    for (const char *c = from->text; *c && used + 1 < sizeof text; c++)
        text[used++] = *c >= ' ' && *c < 127 ? *c : '?';
    text[used] = 0;
    return kgen_fail(err, KGEN_E_CONFIG, "not valid JSON: line %d, column %d: %s", from->line,
                     from->column, text);
}

/* In place and of the same length, so that a message's column stays right. */
static void replace_infinity(char *text, size_t size) {
    static const char word[] = "Infinity", number[] = "1e308   ";
    size_t length = sizeof word - 1;
    int quoted = 0;
    for (size_t i = 0; i < size; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && size - i >= length && memcmp(text + i, word, length) == 0)
            memcpy(text + i, number, length);
    }
}

kgen_status kgen__config_parse(json_t **out, const char *json, size_t size, kgen_error *err) {
    *out = NULL;
    if (size > CONFIG_MAX_BYTES)
        return kgen_fail(err, KGEN_E_CONFIG, "%zu bytes: a config.json has at most %d", size,
                         CONFIG_MAX_BYTES);
    char *text = malloc(size ? size : 1);
    if (!text) return kgen_fail(err, KGEN_E_NOMEM, "config.json: no memory for %zu bytes", size);
    memcpy(text, json, size);
    replace_infinity(text, size);
    json_error_t why;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (!root) return parse_error(&why, err);
    if (json_is_object(root)) {
        *out = root;
        return KGEN_OK;
    }
    json_decref(root);
    return kgen_fail(err, KGEN_E_CONFIG, "an object expected, not a list");
}
