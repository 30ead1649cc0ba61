/* kgen_scatter_args to tensors by name and back, by the rows of scatter_args.def. */
#include "scatter_all.h"

#include <string.h>

void kgen__scatter_unpack(kgen__scatter_all *all, const kgen_scatter_args *args) {
    memset(all, 0, sizeof *all);
    all->live = args->live;
    all->error = args->error;
#define KGEN_OP_ARGS(ID, which) if (args->op == KGEN_OP_##ID) {
#define KGEN_TENSOR(which, field, ...) all->field = args->which.field;
#define KGEN_NUMBER(which, field, ...) all->field = args->which.field;
#define KGEN_OP_END(ID, which) }
#include <kgen/scatter_args.def>
}

enum {
#define KGEN_WHEN(ID, ...) WHEN_##ID,
#include <kgen/scatter_args.def>
};
enum {
    ALWAYS = 0,
#define KGEN_WHEN(ID, ...) ID = 1 << WHEN_##ID,
#include <kgen/scatter_args.def>
};

static int conditions_of(const kgen_scatter_spec *s) {
    int held = 0;
#define KGEN_WHEN(ID, text, condition) held |= (condition) ? ID : 0;
#include <kgen/scatter_args.def>
    return held;
}

void kgen__scatter_pack(kgen_scatter_args *args, const kgen_scatter_spec *s,
                        const kgen__scatter_all *all) {
    int held = conditions_of(s);
    memset(args, 0, sizeof *args);
    args->op = (kgen_scatter_op)s->op;
    args->live = all->live;
    args->error = all->error;
#define PUT(which, field, when) \
    if (((when) & held) == (when)) args->which.field = all->field;
#define KGEN_OP_ARGS(ID, which) if (args->op == KGEN_OP_##ID) {
#define KGEN_TENSOR(which, field, type, tag, shape, strides, when, ...) PUT(which, field, when)
#define KGEN_FORM(which, field, type, tag, shape, strides, when, ...) PUT(which, field, when)
#define KGEN_NUMBER(which, field, type, when, ...) PUT(which, field, when)
#define KGEN_OP_END(ID, which) }
#include <kgen/scatter_args.def>
}
