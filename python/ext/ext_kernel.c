/* kgen.Kernel: launch(name=tensor, ..., stream=, workspace=). Names and places of the
 * arguments are those of kgen_args_row. */
#include "python_ext.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject *kgen__py_kernel_type;

enum { SLOTS_MAX = KGEN_ARGS_TENSORS_MAX + 16, STREAM = -1, WORKSPACE = -2 };

typedef enum slot_kind { TENSOR, FLOAT, INT32, INT64 } slot_kind;

typedef struct slot {
    PyObject *name; /* interned */
    size_t offset;
    slot_kind kind;
} slot;

typedef struct py_kernel {
    PyObject ob_base;
    kgen__py_context *owner;
    kgen_kernel *kernel;
    kgen_args_room *empty; /* no argument given, op and family tagged */
    size_t bytes;          /* of it that the family has */
    int count;
    slot slots[SLOTS_MAX];
    PyObject *names; /* of the last launch, a constant of its call site */
    int named[SLOTS_MAX];
} py_kernel;

static PyObject *name_stream, *name_workspace;

/* ---- the table of arguments ---- */

static const struct {
    const char *ctype;
    slot_kind kind;
} kinds[] = {{"float", FLOAT}, {"int32_t", INT32}, {"int64_t", INT64}};

static slot_kind kind_of(const kgen_arg_row *row) {
    for (size_t i = 0; row->ctype && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(row->ctype, kinds[i].ctype)) return kinds[i].kind;
    return TENSOR;
}

static int fill_slots(py_kernel *self, const kgen_args *args) {
    kgen_arg_row row;
    for (int i = 0; kgen_args_row(&row, args, i); i++) {
        if (row.form) continue;
        if (self->count == SLOTS_MAX) {
            PyErr_SetString(PyExc_RuntimeError, "a family with too many arguments");
            return -1;
        }
        slot *s = &self->slots[self->count++];
        *s = (slot){PyUnicode_InternFromString(row.name), row.offset, kind_of(&row)};
        if (!s->name) return -1;
    }
    return 0;
}

static size_t bytes_of(kgen_family_id family) {
    static const size_t bytes[] = {
#define KGEN_FAMILY(name, NAME) sizeof(kgen_##name##_args),
#include <kgen/families.def>
    };
    return bytes[family];
}

PyObject *kgen__py_kernel_of(kgen__py_context *owner, kgen_kernel *kernel) {
    kgen_args args;
    allocfunc allocate = (allocfunc)PyType_GetSlot(kgen__py_kernel_type, Py_tp_alloc);
    py_kernel *self = (py_kernel *)allocate(kgen__py_kernel_type, 0);
    if (!self) return NULL;
    Py_INCREF((PyObject *)owner);
    self->owner = owner;
    self->kernel = kernel;
    self->empty = calloc(1, sizeof *self->empty);
    if (!self->empty) {
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    kgen_args_init(&args, self->empty, kgen_kernel_spec(kernel));
    self->bytes = bytes_of(args.family);
    if (fill_slots(self, &args)) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static void kernel_free(PyObject *object) {
    py_kernel *self = (py_kernel *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (int i = 0; i < self->count; i++) Py_XDECREF(self->slots[i].name);
    Py_XDECREF(self->names);
    Py_XDECREF((PyObject *)self->owner);
    free(self->empty);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF((PyObject *)type);
}

/* ---- names of a call ---- */

static int same_text(PyObject *a, PyObject *b) { return a == b || PyUnicode_Compare(a, b) == 0; }

static int find_slot(int *out, const py_kernel *self, PyObject *name) {
    if (same_text(name, name_stream) || same_text(name, name_workspace)) {
        *out = same_text(name, name_stream) ? STREAM : WORKSPACE;
        return 0;
    }
    for (int i = 0; i < self->count; i++)
        if (same_text(name, self->slots[i].name)) {
            *out = i;
            return 0;
        }
    char line[KGEN_SPEC_LINE_MAX];
    kgen_spec_print(line, kgen_kernel_spec(self->kernel));
    PyErr_Format(PyExc_TypeError, "%U: no argument of %s", name, line);
    return -1;
}

/* The names of a call are one tuple of its code object: it is looked up once. */
static int learn_names(py_kernel *self, PyObject *names) {
    if (names == self->names) return 0;
    Py_ssize_t count = PyTuple_Size(names);
    Py_XDECREF(self->names);
    self->names = NULL;
    if (count > SLOTS_MAX) {
        PyErr_SetString(PyExc_TypeError, "too many arguments");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (find_slot(&self->named[i], self, PyTuple_GetItem(names, i))) return -1;
    Py_INCREF(names);
    self->names = names;
    return 0;
}

/* ---- one call ---- */

typedef struct call {
    kgen_args args;
    kgen_args_room room;
    kgen_stream stream;
    int has_stream;
    PyObject *like; /* a tensor whose program has a current stream */
} call;

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

static int take_tensor(call *c, const py_kernel *self, const slot *s, PyObject *value) {
    kgen__place place;
    kgen_tensor *t = (kgen_tensor *)((char *)&c->room + s->offset);
    if (value == Py_None) return 0;
    if (kgen__py_read(t, &place, value)) return -1;
    if (t->rank == 0) { /* engines keep scales so */
        t->rank = 1;
        t->shape[0] = t->stride[0] = 1;
    }
    if (!lies_on(self->owner, place)) {
        PyErr_Format(kgen__py_error, "%U: it lies on %s:%d, the kernel was prepared on %s", s->name,
                     kind_name(place.kind), place.index, kgen_context_device(self->owner->ctx));
        return -1;
    }
    if (!c->like) c->like = value;
    return 0;
}

static int take_number(call *c, const slot *s, PyObject *value) {
    char *at = (char *)&c->room + s->offset;
    if (s->kind == FLOAT) {
        float x = (float)PyFloat_AsDouble(value);
        memcpy(at, &x, sizeof x);
        return PyErr_Occurred() ? -1 : 0;
    }
    long long x = PyLong_AsLongLong(value);
    if (x == -1 && PyErr_Occurred()) return -1;
    if (s->kind == INT64) {
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

static int take_workspace(call *c, const py_kernel *self, PyObject *value) {
    kgen_tensor t;
    kgen__place place;
    if (value == Py_None) return 0;
    if (kgen__py_read(&t, &place, value)) return -1;
    if (!lies_on(self->owner, place)) {
        PyErr_Format(kgen__py_error, "workspace: it lies on %s:%d", kind_name(place.kind),
                     place.index);
        return -1;
    }
    int64_t count = 1;
    for (int32_t i = 0; i < t.rank; i++) count *= t.shape[i];
    c->args.workspace = t.data;
    c->args.workspace_bytes = (size_t)(count * kgen_dtype_size(t.dtype));
    return 0;
}

static int take_stream(call *c, PyObject *value) {
    if (value == Py_None) return 0;
    c->stream = PyLong_AsVoidPtr(value);
    c->has_stream = 1;
    return PyErr_Occurred() ? -1 : 0;
}

static int take_value(call *c, const py_kernel *self, int index, PyObject *value) {
    if (index == STREAM) return take_stream(c, value);
    if (index == WORKSPACE) return take_workspace(c, self, value);
    const slot *s = &self->slots[index];
    if (s->kind == TENSOR) return take_tensor(c, self, s, value);
    return value == Py_None ? 0 : take_number(c, s, value);
}

static int read_call(call *c, py_kernel *self, PyObject *const *values, Py_ssize_t positional,
                     PyObject *names) {
    if (!self->owner->ctx) {
        PyErr_SetString(PyExc_RuntimeError, "the context of this kernel is closed");
        return -1;
    }
    if (positional) {
        PyErr_SetString(PyExc_TypeError, "arguments are given by name");
        return -1;
    }
    c->args = (kgen_args){.family = kgen_kernel_spec(self->kernel)->family, .any = &c->room};
    c->stream = NULL;
    c->has_stream = 0;
    c->like = NULL;
    memcpy(&c->room, self->empty, self->bytes);
    if (!names) return 0;
    if (learn_names(self, names)) return -1;
    Py_ssize_t count = PyTuple_Size(names);
    for (Py_ssize_t i = 0; i < count; i++)
        if (take_value(c, self, self->named[i], values[i])) return -1;
    return 0;
}

static int find_workspace(call *c, const py_kernel *self) {
    kgen_error err;
    kgen__space *space;
    size_t bytes;
    if (kgen_workspace_size(self->kernel, &c->args, &bytes, &err) != KGEN_OK) {
        kgen__py_raise(&err);
        return -1;
    }
    if (!bytes) return 0;
    if (kgen__py_space(&space, self->owner, c->stream, bytes)) return -1;
    c->args.workspace = space->memory;
    c->args.workspace_bytes = space->bytes;
    return 0;
}

/* A launch on a GPU returns at once: the GIL is kept. On the cpu device it computes. */
static kgen_status launch(const py_kernel *self, const call *c, kgen_error *err) {
    if (self->owner->place.kind != KGEN__ON_CPU)
        return kgen_launch(self->kernel, &c->args, c->stream, err);
    PyThreadState *thread = PyEval_SaveThread();
    kgen_status status = kgen_launch(self->kernel, &c->args, c->stream, err);
    PyEval_RestoreThread(thread);
    return status;
}

static PyObject *kernel_launch(PyObject *object, PyObject *const *values, Py_ssize_t positional,
                               PyObject *names) {
    py_kernel *self = (py_kernel *)object;
    call c;
    kgen_error err;
    if (read_call(&c, self, values, positional, names)) return NULL;
    if (!c.has_stream && kgen__py_current_stream(&c.stream, c.like, self->owner->place))
        return NULL;
    if (!c.args.workspace && find_workspace(&c, self)) return NULL;
    if (launch(self, &c, &err) != KGEN_OK) return kgen__py_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *kernel_check(PyObject *object, PyObject *const *values, Py_ssize_t positional,
                              PyObject *names) {
    py_kernel *self = (py_kernel *)object;
    call c;
    kgen_error err;
    if (read_call(&c, self, values, positional, names)) return NULL;
    if (!c.args.workspace && find_workspace(&c, self)) return NULL;
    if (kgen_launch_check(self->kernel, &c.args, &err) != KGEN_OK) return kgen__py_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *kernel_workspace_bytes(PyObject *object, PyObject *const *values,
                                        Py_ssize_t positional, PyObject *names) {
    py_kernel *self = (py_kernel *)object;
    call c;
    kgen_error err;
    size_t bytes;
    if (read_call(&c, self, values, positional, names)) return NULL;
    if (kgen_workspace_size(self->kernel, &c.args, &bytes, &err) != KGEN_OK)
        return kgen__py_raise(&err);
    return PyLong_FromSize_t(bytes);
}

/* ---- attributes ---- */

static PyObject *get_spec(PyObject *object, void *unused) {
    char line[KGEN_SPEC_LINE_MAX];
    (void)unused;
    kgen_spec_print(line, kgen_kernel_spec(((py_kernel *)object)->kernel));
    return PyUnicode_FromString(line);
}

static PyObject *get_symbol(PyObject *object, void *unused) {
    char symbol[KGEN_SYMBOL_MAX];
    (void)unused;
    kgen_spec_symbol(symbol, kgen_kernel_spec(((py_kernel *)object)->kernel));
    return PyUnicode_FromString(symbol);
}

static PyObject *get_reason(PyObject *object, void *unused) {
    (void)unused;
    return PyUnicode_FromString(kgen_kernel_match(((py_kernel *)object)->kernel)->reason);
}

static PyObject *get_context(PyObject *object, void *unused) {
    PyObject *owner = (PyObject *)((py_kernel *)object)->owner;
    (void)unused;
    Py_INCREF(owner);
    return owner;
}

static PyObject *kernel_repr(PyObject *object) {
    PyObject *spec = get_spec(object, NULL);
    PyObject *text = spec ? PyUnicode_FromFormat("<kgen.Kernel %U>", spec) : NULL;
    Py_XDECREF(spec);
    return text;
}

int kgen__py_add_kernel(PyObject *module) {
    static PyMethodDef methods[] = {
        {"launch", (PyCFunction)(void (*)(void))kernel_launch, METH_FASTCALL | METH_KEYWORDS,
         "launch(name=tensor or number, ..., stream=None, workspace=None)"},
        {"check", (PyCFunction)(void (*)(void))kernel_check, METH_FASTCALL | METH_KEYWORDS,
         "the checks of launch alone"},
        {"workspace_bytes", (PyCFunction)(void (*)(void))kernel_workspace_bytes,
         METH_FASTCALL | METH_KEYWORDS, "bytes of workspace of a launch of these shapes"},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef attributes[] = {
        {"spec", get_spec, NULL, "the resolved spec line", NULL},
        {"symbol", get_symbol, NULL, "what a profiler shows", NULL},
        {"reason", get_reason, NULL, "why it has these tuning keys", NULL},
        {"context", get_context, NULL, "whose it is", NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    static PyType_Slot slots[] = {{Py_tp_dealloc, kernel_free},
                                  {Py_tp_repr, kernel_repr},
                                  {Py_tp_methods, methods},
                                  {Py_tp_getset, attributes},
                                  {0, NULL}};
    static PyType_Spec spec = {"kgen.Kernel", sizeof(py_kernel), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    name_stream = PyUnicode_InternFromString("stream");
    name_workspace = PyUnicode_InternFromString("workspace");
    kgen__py_kernel_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!kgen__py_kernel_type || !name_stream || !name_workspace) return -1;
    return PyModule_AddObjectRef(module, "Kernel", (PyObject *)kgen__py_kernel_type);
}
