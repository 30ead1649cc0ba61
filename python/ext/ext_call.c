/* One call by name: the table of a family's arguments, the names of a call site, and what
 * was given. Names and places of the arguments are those of kgen_args_row. */
#include "python_ext.h"

#include <stdlib.h>
#include <string.h>

static PyObject *name_stream, *name_workspace;

/* ---- the table of arguments ---- */

static const struct {
    const char *ctype;
    kgen__slot_kind kind;
} kinds[] = {{"float", KGEN__FLOAT}, {"int32_t", KGEN__INT32}, {"int64_t", KGEN__INT64}};

static kgen__slot_kind kind_of(const kgen_arg_row *row) {
    for (size_t i = 0; row->ctype && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(row->ctype, kinds[i].ctype)) return kinds[i].kind;
    return KGEN__TENSOR;
}

static size_t bytes_of(kgen_family_id family) {
    static const size_t bytes[] = {
#define KGEN_FAMILY(name, NAME) sizeof(kgen_##name##_args),
#include <kgen/families.def>
    };
    return bytes[family];
}

int kgen__table_fill(kgen__table *table, const kgen_spec *spec) {
    kgen_args args;
    kgen_arg_row row;
    if (!name_stream) name_stream = PyUnicode_InternFromString("stream");
    if (!name_workspace) name_workspace = PyUnicode_InternFromString("workspace");
    table->empty = calloc(1, sizeof *table->empty);
    if (!table->empty || !name_stream || !name_workspace) {
        PyErr_NoMemory();
        return -1;
    }
    kgen_args_init(&args, table->empty, spec);
    table->family = args.family;
    table->bytes = bytes_of(args.family);
    for (int i = 0; kgen_args_row(&row, &args, i); i++) {
        if (row.form) continue;
        if (table->count == KGEN__SLOTS_MAX) {
            PyErr_SetString(PyExc_RuntimeError, "a family with too many arguments");
            return -1;
        }
        kgen__slot *s = &table->slots[table->count++];
        *s = (kgen__slot){PyUnicode_InternFromString(row.name), row.offset, kind_of(&row), 0, 0};
        if (!s->name) return -1;
    }
    return 0;
}

void kgen__table_mark_written(kgen__table *table, const kgen_spec *spec) {
    kgen_arg arg;
    for (int i = 0; i < KGEN_ARGS_TENSORS_MAX; i++)
        for (int n = 0; kgen_args_want(&arg, spec, i) && n < table->count; n++)
            if (!PyUnicode_CompareWithASCIIString(table->slots[n].name, arg.name))
                table->slots[n].written |= arg.use != KGEN_USE_IN;
}

void kgen__table_clear(kgen__table *table) {
    for (int i = 0; i < table->count; i++) Py_XDECREF(table->slots[i].name);
    Py_XDECREF(table->names);
    free(table->empty);
}

/* ---- names of a call ---- */

static int same_text(PyObject *a, PyObject *b) { return a == b || PyUnicode_Compare(a, b) == 0; }

int kgen__table_find(const kgen__table *table, PyObject *name) {
    if (same_text(name, name_stream)) return KGEN__STREAM;
    if (same_text(name, name_workspace)) return KGEN__WORKSPACE;
    for (int i = 0; i < table->count; i++)
        if (same_text(name, table->slots[i].name)) return i;
    PyErr_Format(PyExc_TypeError, "%U: no argument of a launch of %s", name,
                 kgen_family_name(table->family));
    return KGEN__NO_SLOT;
}

/* The names of a call are one tuple of its code object: it is looked up once. */
static int learn_names(kgen__table *table, PyObject *names) {
    if (names == table->names) return 0;
    Py_ssize_t count = PyTuple_Size(names);
    Py_XDECREF(table->names);
    table->names = NULL;
    if (count > KGEN__SLOTS_MAX) {
        PyErr_SetString(PyExc_TypeError, "too many arguments");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        table->named[i] = kgen__table_find(table, PyTuple_GetItem(names, i));
        if (table->named[i] == KGEN__NO_SLOT) return -1;
    }
    Py_INCREF(names);
    table->names = names;
    return 0;
}

/* ---- what is given ---- */

static int take_tensor(kgen__call *c, int slot, const kgen__slot *s, PyObject *value) {
    kgen_tensor *t = (kgen_tensor *)((char *)&c->room + s->offset);
    if (value == Py_None) return 0;
    if (kgen__py_read(t, &c->memory[c->given], value)) return -1;
    if (t->rank == 0) { /* engines keep scales so */
        t->rank = 1;
        t->shape[0] = t->stride[0] = 1;
    }
    if (!c->like) c->like = value;
    c->slots[c->given++] = slot;
    return 0;
}

static int take_number(kgen__call *c, const kgen__slot *s, PyObject *value) {
    char *at = (char *)&c->room + s->offset;
    if (s->kind == KGEN__FLOAT) {
        float x = (float)PyFloat_AsDouble(value);
        memcpy(at, &x, sizeof x);
        return PyErr_Occurred() ? -1 : 0;
    }
    long long x = PyLong_AsLongLong(value);
    if (x == -1 && PyErr_Occurred()) return -1;
    if (s->kind == KGEN__INT64) {
        int64_t wide = x;
        memcpy(at, &wide, sizeof wide);
        return 0;
    }
    if (x != (int32_t)x) {
        PyErr_Format(PyExc_OverflowError, "%U: %lld: not a number of 32 bits", s->name, x);
        return -1;
    }
    int32_t narrow = (int32_t)x;
    memcpy(at, &narrow, sizeof narrow);
    return 0;
}

static int take_workspace(kgen__call *c, PyObject *value) {
    kgen_tensor t;
    if (value == Py_None) return 0;
    if (kgen__py_read(&t, &c->memory[c->given], value)) return -1;
    if (!kgen__py_is_dense(&t)) {
        PyErr_SetString(PyExc_ValueError,
                        "workspace: its elements do not lie in order without gaps");
        return -1;
    }
    int64_t count = 1;
    for (int32_t i = 0; i < t.rank; i++) count *= t.shape[i];
    c->args.workspace = t.data;
    c->args.workspace_bytes = (size_t)(count * kgen_dtype_size(t.dtype));
    c->slots[c->given++] = KGEN__WORKSPACE;
    return 0;
}

static int take_stream(kgen__call *c, PyObject *value) {
    if (value == Py_None) return 0;
    c->stream = PyLong_AsVoidPtr(value);
    c->has_stream = 1;
    return PyErr_Occurred() ? -1 : 0;
}

static int take_value(kgen__call *c, const kgen__table *table, int slot, PyObject *value) {
    if (slot == KGEN__STREAM) return take_stream(c, value);
    if (slot == KGEN__WORKSPACE) return take_workspace(c, value);
    const kgen__slot *s = &table->slots[slot];
    if (s->kind == KGEN__TENSOR) return take_tensor(c, slot, s, value);
    return value == Py_None ? 0 : take_number(c, s, value);
}

int kgen__call_read(kgen__call *c, kgen__table *table, PyObject *const *values, PyObject *names) {
    c->args = (kgen_args){.family = table->family, .any = &c->room};
    c->stream = NULL;
    c->has_stream = c->given = 0;
    c->like = NULL;
    c->space = NULL;
    memcpy(&c->room, table->empty, table->bytes);
    if (!names) return 0;
    if (learn_names(table, names)) return -1;
    Py_ssize_t count = PyTuple_Size(names);
    int named[KGEN__SLOTS_MAX]; /* what Python reads lets other threads in, with other names */
    memcpy(named, table->named, (size_t)count * sizeof *named);
    for (Py_ssize_t i = 0; i < count; i++)
        if (take_value(c, table, named[i], values[i])) return -1;
    return 0;
}

/* ---- where it lies ---- */

static int lies_on(const kgen__py_context *owner, kgen__place place) {
    int32_t kind = owner->place.kind, at = place.kind;
    if (kind == KGEN__ON_CPU)
        return at == KGEN__ON_CPU || at == KGEN__ON_CUDA_HOST || at == KGEN__ON_ROCM_HOST;
    if (at == KGEN__ON_CUDA_HOST || at == KGEN__ON_ROCM_HOST) return 1;
    int gpu = at == KGEN__ON_CUDA || at == KGEN__ON_ROCM || at == KGEN__ON_CUDA_MANAGED;
    return gpu && place.index == owner->place.index;
}

static const char *kind_name(int32_t kind) {
    return kind == KGEN__ON_CPU ? "cpu" : kind == KGEN__ON_ROCM ? "rocm" : "cuda";
}

/* A pointer of another device would end the process's context, or the process. */
int kgen__call_check_places(const kgen__call *c, const kgen__table *table,
                            const kgen__py_context *owner) {
    for (int i = 0; i < c->given; i++) {
        kgen__place place = c->memory[i].place;
        if (lies_on(owner, place)) continue;
        int slot = c->slots[i];
        PyErr_Format(kgen__py_error, "%U: it lies on %s:%d, the kernel was prepared on %s",
                     slot == KGEN__WORKSPACE ? name_workspace : table->slots[slot].name,
                     kind_name(place.kind), place.index, kgen_context_device(owner->ctx));
        return -1;
    }
    return 0;
}

int kgen__call_check_written(const kgen__call *c, const kgen__table *of_kernel) {
    if (c->args.family != of_kernel->family) return 0; /* refused by the launch */
    for (int i = 0; i < c->given; i++) {
        int slot = c->slots[i];
        if (!c->memory[i].readonly || slot >= of_kernel->count) continue;
        if (slot != KGEN__WORKSPACE && !of_kernel->slots[slot].written) continue;
        PyErr_Format(kgen__py_error, "%U: memory that may not be written",
                     slot == KGEN__WORKSPACE ? name_workspace : of_kernel->slots[slot].name);
        return -1;
    }
    return 0;
}
