/* Reads of a model's config.json, by name and type. Private to plan. */
#ifndef KGEN_PLAN_CONFIG_H
#define KGEN_PLAN_CONFIG_H

#include <jansson.h>
#include <kgen/status.h>
#include <stdint.h>

enum { KGEN__FIELDS_READ_MAX = 192, KGEN__FIELD_NAME_MAX = 48 };

/* The names that were asked for: the others are looked at in unread.c. */
typedef struct kgen__fields_read {
    const char *names[KGEN__FIELDS_READ_MAX];
    size_t count;
} kgen__fields_read;

typedef struct kgen__config {
    json_t *root;            /* the whole file */
    json_t *text;            /* where fields are looked up: root, or a part of it */
    kgen__fields_read *read; /* of text; NULL: not noted */
    kgen_error *err;
} kgen__config;

/* JSON null is NULL, as a missing field. given: also null counts. */
json_t *kgen__config_field(const kgen__config *c, const char *key);
int kgen__config_given(const kgen__config *c, const char *key);
json_t *kgen__config_outer(const kgen__config *c, const char *key); /* text's, else root's */

/* Each leaves *out alone when the field is missing. KGEN_E_CONFIG names the
 * field, its value and the bound. */
kgen_status kgen__config_int(const kgen__config *c, const char *key, int64_t low, int64_t high,
                             int64_t *out);
kgen_status kgen__config_number(const kgen__config *c, const char *key, double low, double high,
                                double *out);
kgen_status kgen__config_bool(const kgen__config *c, const char *key, int *out);

/* A name short enough to print, and safe on a terminal. "" when missing. */
kgen_status kgen__config_name(const kgen__config *c, json_t *value, const char *key, char *out,
                              size_t size);

/* A list with an entry a layer, or NULL when missing. */
kgen_status kgen__config_list(const kgen__config *c, const char *key, int64_t layers, json_t **out);

/* A part of the config as a config of its own. *found 0: missing. */
kgen_status kgen__config_part(const kgen__config *c, const char *key, kgen__config *out,
                              int *found);

kgen_status kgen__config_wrong(const kgen__config *c, const char *key, const char *expected);
kgen_status kgen__config_missing(const kgen__config *c, const char *key, const char *why);

/* Python writes Infinity, which is no JSON: it is read as 1e308. *out: json_decref. */
kgen_status kgen__config_parse(json_t **out, const char *json, size_t size, kgen_error *err);

#endif
