/* What the arguments of a launch consist of, by the rows of their family and op. */
#include <stdio.h>
#include <string.h>

#include <kgen/params.h>

#include "launch.h"

_Static_assert(sizeof(kgen_args) <= 64, "arguments are handed over by address");

void kgen_args_init(kgen_args *args, kgen_args_room *room, const kgen_spec *spec) {
    memset(room, 0, sizeof *room);
    *args = (kgen_args){.family = spec->family, .any = room};
    if (spec->family == KGEN_FAMILY_SCATTER) room->scatter.op = (kgen_scatter_op)spec->scatter.op;
}

void kgen_args_copy(kgen_args *out, kgen_args_room *room, const kgen_args *args) {
    const kgen__args_rows *rows = kgen__args_rows_in(args);
    *out = *args;
    if (rows && args->any) out->any = memcpy(room, args->any, rows->args_bytes);
}

const kgen__args_rows *kgen__args_rows_in(const kgen_args *args) {
    kgen_spec spec = {.family = args->family};
    if ((unsigned)args->family >= KGEN_FAMILY_COUNT) return NULL;
    if (args->family == KGEN_FAMILY_SCATTER) {
        if (!args->scatter) return NULL;
        spec.scatter.op = (int32_t)args->scatter->op;
    }
    return kgen__args_rows_of(&spec);
}

static const kgen__row *row_at(const kgen__args_rows *rows, int index) {
    for (int i = 0; rows && i < rows->row_count && index >= 0; i++)
        if (!(rows->rows[i].flags & KGEN__ROW_FORM) && index-- == 0) return &rows->rows[i];
    return NULL;
}

int kgen_args_count(const kgen_args *args) {
    const kgen__args_rows *rows = kgen__args_rows_in(args);
    int count = 0;
    while (row_at(rows, count)) count++;
    return count;
}

kgen_tensor *kgen_args_tensor(const kgen_args *args, int index) {
    const kgen__row *row = row_at(kgen__args_rows_in(args), index);
    return row && args->any ? (kgen_tensor *)((char *)args->any + row->offset) : NULL;
}

const char *kgen_args_name(const kgen_args *args, int index) {
    const kgen__row *row = row_at(kgen__args_rows_in(args), index);
    return row ? row->name : NULL;
}

/* Of all forms: what one of them writes may be written. */
kgen_use kgen_args_use(const kgen_args *args, int index) {
    const kgen__args_rows *rows = kgen__args_rows_in(args);
    const kgen__row *row = row_at(rows, index);
    kgen_use use = row ? row->use : KGEN_USE_IN;
    for (int i = 0; row && i < rows->row_count; i++)
        if (rows->rows[i].offset == row->offset && rows->rows[i].use != use) use = KGEN_USE_INOUT;
    return use;
}

/* --- what a spec wants ------------------------------------------------------ */

static void name_sizes(kgen_arg *out, const kgen__args_rows *rows, const kgen__row *row,
                       const kgen_spec *spec) {
    int64_t given[KGEN__SIZES_MAX];
    rows->given(given, spec);
    out->rank = out->by_layout ? 0 : row->rank;
    for (int i = 0; i < out->rank; i++) {
        out->size[i] = rows->sizes[row->dims[i] & ~KGEN__MORE].letters;
        out->more[i] = !!(row->dims[i] & KGEN__MORE);
        out->given[i] = given[row->dims[i] & ~KGEN__MORE];
    }
}

static void name_conditions(char out[80], const kgen__args_rows *rows, uint32_t when) {
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < rows->when_count; i++)
        if (when >> i & 1 && used < 80)
            used +=
                (size_t)snprintf(out + used, 80 - used, "%s%s", used ? ", " : "", rows->whens[i]);
}

int kgen_args_want(kgen_arg *out, const kgen_spec *spec, int index) {
    const kgen__args_rows *rows = kgen__args_rows_of(spec);
    const kgen__row *named = row_at(rows, index);
    const kgen__row *row = named ? kgen__args_row(rows, spec, named->offset) : NULL;
    memset(out, 0, sizeof *out);
    if (!named) return 0;
    const kgen__row *shown = row ? row : named;
    out->name = shown->name;
    out->doc = shown->doc;
    out->use = shown->use;
    out->dtype = kgen__args_type(&shown->type, spec);
    out->optional = !!(shown->flags & KGEN__ROW_OPTIONAL);
    out->by_layout = !!(shown->flags & KGEN__ROW_BY_LAYOUT);
    if (shown->tag >= 0)
        out->layout = *(const kgen_layout *)((const char *)&spec->attn + shown->tag);
    name_sizes(out, rows, shown, spec);
    name_conditions(out->when, rows, shown->when);
    return row != NULL;
}

static const kgen_arg_size *find_size(const kgen_arg_size *sizes, size_t count,
                                      const char *letters) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(sizes[i].letters, letters) == 0) return &sizes[i];
    return NULL;
}

kgen_status kgen_arg_shape(int64_t *shape, const kgen_arg *arg, const kgen_arg_size *sizes,
                           size_t count, kgen_error *err) {
    for (int32_t i = 0; i < arg->rank; i++) {
        const kgen_arg_size *size = find_size(sizes, count, arg->size[i]);
        if (!size && arg->given[i] < 0)
            return kgen_fail(err, KGEN_E_ARG, "%s: shape[%d]=%s: not among the sizes", arg->name, i,
                             arg->size[i]);
        shape[i] = arg->given[i] < 0 ? size->value : arg->given[i];
    }
    return KGEN_OK;
}

/* --- in words ---------------------------------------------------------------- */

static const char *key_of(kgen_family_id family, size_t at) {
    for (int i = 0; i < kgen_param_count(family); i++)
        if (kgen_param_at(family, i)->offset == offsetof(kgen_spec, attn) + at)
            return kgen_param_at(family, i)->key;
    return "?";
}

static void say_type(char out[32], kgen_family_id family, const kgen__type *type) {
    if (type->rule == KGEN__TYPE_FIXED)
        snprintf(out, 32, "%s", kgen_dtype_name((kgen_dtype)type->at));
    else if (type->rule == KGEN__TYPE_EITHER)
        snprintf(out, 32, "key %s or %s", key_of(family, type->at), key_of(family, type->other));
    else
        snprintf(out, 32, "key %s", key_of(family, type->at));
}

static void say_shape(char out[64], const kgen__args_rows *rows, const kgen__row *row) {
    size_t used = 0;
    if (row->flags & KGEN__ROW_BY_LAYOUT) {
        snprintf(out, 64, "by layout");
        return;
    }
    for (int i = 0; i < row->rank && used < 64; i++)
        used += (size_t)snprintf(out + used, 64 - used, "[%s%s]",
                                 row->dims[i] & KGEN__MORE ? ">= " : "",
                                 rows->sizes[row->dims[i] & ~KGEN__MORE].letters);
}

int kgen_args_row(kgen_arg_row *out, const kgen_args *args, int index) {
    const kgen__args_rows *rows = kgen__args_rows_in(args);
    memset(out, 0, sizeof *out);
    if (!rows || index < 0 || index >= rows->row_count + rows->number_count) return 0;
    if (index < rows->row_count) {
        const kgen__row *row = &rows->rows[index];
        *out = (kgen_arg_row){.name = row->name,
                              .doc = row->doc,
                              .offset = row->offset,
                              .use = row->use,
                              .form = !!(row->flags & KGEN__ROW_FORM),
                              .optional = !!(row->flags & KGEN__ROW_OPTIONAL)};
        say_type(out->type, args->family, &row->type);
        say_shape(out->shape, rows, row);
        name_conditions(out->when, rows, row->when);
        return 1;
    }
    const kgen__number_row *number = &rows->numbers[index - rows->row_count];
    *out = (kgen_arg_row){
        .name = number->name, .doc = number->doc, .offset = number->offset, .ctype = number->type};
    name_conditions(out->when, rows, number->when);
    return 1;
}
