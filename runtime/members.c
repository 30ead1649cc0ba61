/* What the arguments of a launch consist of, by the rows of their family and op. */
#include <stdio.h>
#include <string.h>

#include "launch.h"

void kgen_args_init(kgen_args *args, const kgen_spec *spec) {
    memset(args, 0, sizeof *args);
    args->family = spec->family;
    if (spec->family == KGEN_FAMILY_SCATTER) args->scatter.op = (kgen_scatter_op)spec->scatter.op;
}

const kgen__args_rows *kgen__args_rows_in(const kgen_args *args) {
    kgen_spec spec = {.family = args->family};
    if ((unsigned)args->family >= KGEN_FAMILY_COUNT) return NULL;
    if (args->family == KGEN_FAMILY_SCATTER) spec.scatter.op = (int32_t)args->scatter.op;
    return kgen__args_rows_of(&spec);
}

static const kgen__row *row_at(const kgen_args *args, int index) {
    const kgen__args_rows *rows = kgen__args_rows_in(args);
    for (int i = 0; rows && i < rows->row_count && index >= 0; i++)
        if (!(rows->rows[i].flags & KGEN__ROW_FORM) && index-- == 0) return &rows->rows[i];
    return NULL;
}

int kgen_args_count(const kgen_args *args) {
    int count = 0;
    while (row_at(args, count)) count++;
    return count;
}

kgen_tensor *kgen_args_tensor(kgen_args *args, int index) {
    const kgen__row *row = row_at(args, index);
    return row ? (kgen_tensor *)((char *)&args->attn + row->offset) : NULL;
}

const char *kgen_args_name(const kgen_args *args, int index) {
    const kgen__row *row = row_at(args, index);
    return row ? row->name : NULL;
}

/* Of all forms: what one of them writes may be written. */
kgen_use kgen_args_use(const kgen_args *args, int index) {
    const kgen__row *row = row_at(args, index);
    const kgen__args_rows *rows = kgen__args_rows_in(args);
    kgen_use use = row ? row->use : KGEN_USE_IN;
    for (int i = 0; row && i < rows->row_count; i++)
        if (rows->rows[i].offset == row->offset && rows->rows[i].use != use) use = KGEN_USE_INOUT;
    return use;
}

/* --- what a spec wants ------------------------------------------------------ */

static void name_sizes(kgen_arg *out, const kgen__args_rows *rows, const kgen__row *row) {
    out->rank = out->by_layout ? 0 : row->rank;
    for (int i = 0; i < out->rank; i++) {
        out->size[i] = rows->sizes[row->dims[i] & ~KGEN__MORE].letters;
        out->more[i] = !!(row->dims[i] & KGEN__MORE);
    }
}

static void name_conditions(kgen_arg *out, const kgen__args_rows *rows, const kgen__row *row) {
    size_t used = 0;
    for (int i = 0; i < rows->when_count; i++)
        if (row->when >> i & 1 && used < sizeof out->when)
            used += (size_t)snprintf(out->when + used, sizeof out->when - used, "%s%s",
                                     used ? ", " : "", rows->whens[i]);
}

int kgen_args_want(kgen_arg *out, const kgen_spec *spec, int index) {
    kgen_args args;
    kgen_args_init(&args, spec);
    const kgen__args_rows *rows = kgen__args_rows_of(spec);
    const kgen__row *named = row_at(&args, index);
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
    name_sizes(out, rows, shown);
    name_conditions(out, rows, shown);
    return row != NULL;
}
