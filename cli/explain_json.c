/* kgen explain FAMILY --json: its parameters, and the arguments of its launches,
 * for programs that mirror the structs. */
#include <kgen/params.h>

#include <jansson.h>
#include <stdlib.h>

#include "cli.h"

static json_t *parameters_json(kgen_family_id family) {
    json_t *all = json_array();
    for (int i = 0; i < kgen_param_count(family); i++) {
        const kgen_param *p = kgen_param_at(family, i);
        json_t *words = json_object();
        for (const kgen_symbol *s = p->symbols; s->name; s++)
            json_object_set_new(words, s->name, json_integer(s->value));
        json_array_append_new(all,
                              json_pack("{s:s, s:I, s:i, s:b, s:o, s:s}", "key", p->key, "offset",
                                        (json_int_t)p->offset, "default", (int)p->initial, "tuning",
                                        p->role == KGEN_ROLE_TUNE, "words", words, "doc", p->doc));
    }
    return all;
}

static json_t *tensor_json(const kgen_arg_row *row) {
    static const char *const uses[] = {
        [KGEN_USE_IN] = "in", [KGEN_USE_OUT] = "out", [KGEN_USE_INOUT] = "inout"};
    return json_pack("{s:s, s:I, s:s, s:s, s:s, s:s, s:b, s:b, s:s}", "name", row->name, "offset",
                     (json_int_t)row->offset, "type", row->type, "shape", row->shape, "when",
                     row->when, "use", uses[row->use], "optional", row->optional, "form", row->form,
                     "doc", row->doc);
}

/* Of the family, or of one op of it. */
static json_t *args_json(const kgen_args *args) {
    json_t *tensors = json_array(), *numbers = json_array();
    kgen_arg_row row;
    for (int i = 0; kgen_args_row(&row, args, i); i++)
        if (row.ctype)
            json_array_append_new(numbers, json_pack("{s:s, s:I, s:s, s:s, s:s}", "name", row.name,
                                                     "offset", (json_int_t)row.offset, "type",
                                                     row.ctype, "when", row.when, "doc", row.doc));
        else
            json_array_append_new(tensors, tensor_json(&row));
    return json_pack("{s:o, s:o}", "tensors", tensors, "numbers", numbers);
}

static json_t *launches_json(kgen_family_id family) {
    json_t *all = json_object();
    kgen_scatter_args scatter = {0};
    kgen_args args = {.family = family, .scatter = &scatter};
    if (family != KGEN_FAMILY_SCATTER) {
        json_object_set_new(all, kgen_family_name(family), args_json(&args));
        return all;
    }
#define KGEN_OP(ID, number, name) \
    scatter.op = KGEN_OP_##ID;    \
    json_object_set_new(all, #name, args_json(&args));
#include <kgen/scatter_ops.def>
    return all;
}

static const size_t args_bytes[] = {
#define KGEN_FAMILY(name, NAME) [KGEN_FAMILY_##NAME] = sizeof(kgen_##name##_args),
#include <kgen/families.def>
};

int kgen__explain_json(kgen_family_id family) {
    json_t *root =
        json_pack("{s:s, s:i, s:I, s:o, s:o}", "family", kgen_family_name(family), "id",
                  (int)family, "args_bytes", (json_int_t)args_bytes[family], "parameters",
                  parameters_json(family), "launches", launches_json(family));
    return kgen__json_print(root);
}
