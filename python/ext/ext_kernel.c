/* kgen.Kernel: launch(name=tensor, ..., stream=, workspace=). */
#include "python_ext.h"

PyTypeObject *kgen__py_kernel_type;

typedef struct py_kernel {
    PyObject ob_base;
    kgen__py_context *owner;
    kgen_kernel *kernel;
    kgen__table table;
} py_kernel;

PyObject *kgen__py_kernel_of(kgen__py_context *owner, kgen_kernel *kernel) {
    allocfunc allocate = (allocfunc)PyType_GetSlot(kgen__py_kernel_type, Py_tp_alloc);
    py_kernel *self = (py_kernel *)allocate(kgen__py_kernel_type, 0);
    if (!self) return NULL;
    Py_INCREF((PyObject *)owner);
    self->owner = owner;
    self->kernel = kernel;
    if (kgen__table_fill(&self->table, kgen_kernel_spec(kernel))) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    kgen__table_mark_written(&self->table, kgen_kernel_spec(kernel));
    return (PyObject *)self;
}

static void kernel_free(PyObject *object) {
    py_kernel *self = (py_kernel *)object;
    PyTypeObject *type = Py_TYPE(object);
    kgen__table_clear(&self->table);
    Py_XDECREF((PyObject *)self->owner);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF((PyObject *)type);
}

/* ---- one call ---- */

/* Arguments, stream and workspace of a launch, as far as a check needs them too. */
static int complete(kgen__call *c, const py_kernel *self, const kgen__table *table) {
    kgen_error err;
    size_t bytes;
    if (!self->owner->ctx) {
        PyErr_SetString(PyExc_RuntimeError, "the context of this kernel is closed");
        return -1;
    }
    if (kgen__call_check_places(c, table, self->owner)) return -1;
    if (kgen__call_check_written(c, &self->table)) return -1;
    if (!c->has_stream && kgen__py_current_stream(&c->stream, c->like, self->owner->place))
        return -1;
    if (kgen__py_check_stream(c->stream, self->owner)) return -1;
    if (c->args.workspace) return 0;
    if (kgen_workspace_size(self->kernel, &c->args, &bytes, &err) != KGEN_OK) {
        kgen__py_raise(&err);
        return -1;
    }
    if (!bytes) return 0;
    if (kgen__py_space(&c->space, self->owner, c->stream, bytes)) return -1;
    c->args.workspace = c->space->memory;
    c->args.workspace_bytes = c->space->bytes;
    return 0;
}

/* A launch on a GPU returns at once: the GIL is kept. On the cpu device it computes. */
static kgen_status launch(const py_kernel *self, const kgen__call *c, kgen_error *err) {
    if (self->owner->place.kind != KGEN__ON_CPU)
        return kgen_launch(self->kernel, &c->args, c->stream, err);
    if (c->space) c->space->busy = 1;
    PyThreadState *thread = kgen__py_enter(self->owner);
    kgen_status status = kgen_launch(self->kernel, &c->args, c->stream, err);
    kgen__py_leave(self->owner, thread);
    if (c->space) c->space->busy = 0;
    return status;
}

PyObject *kgen__py_kernel_run(PyObject *object, kgen__call *c, const kgen__table *table,
                              int check_only) {
    const py_kernel *self = (const py_kernel *)object;
    kgen_error err;
    if (complete(c, self, table)) return NULL;
    kgen_status status =
        check_only ? kgen_launch_check(self->kernel, &c->args, &err) : launch(self, c, &err);
    if (status != KGEN_OK) return kgen__py_raise(&err);
    Py_RETURN_NONE;
}

static int read_call(kgen__call *c, py_kernel *self, PyObject *const *values, Py_ssize_t positional,
                     PyObject *names) {
    if (positional) {
        PyErr_SetString(PyExc_TypeError, "arguments are given by name");
        return -1;
    }
    return kgen__call_read(c, &self->table, values, names);
}

static PyObject *kernel_launch(PyObject *object, PyObject *const *values, Py_ssize_t positional,
                               PyObject *names) {
    py_kernel *self = (py_kernel *)object;
    kgen__call c;
    if (read_call(&c, self, values, positional, names)) return NULL;
    return kgen__py_kernel_run(object, &c, &self->table, 0);
}

static PyObject *kernel_check(PyObject *object, PyObject *const *values, Py_ssize_t positional,
                              PyObject *names) {
    py_kernel *self = (py_kernel *)object;
    kgen__call c;
    if (read_call(&c, self, values, positional, names)) return NULL;
    return kgen__py_kernel_run(object, &c, &self->table, 1);
}

static PyObject *kernel_workspace_bytes(PyObject *object, PyObject *const *values,
                                        Py_ssize_t positional, PyObject *names) {
    py_kernel *self = (py_kernel *)object;
    kgen__call c;
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
    kgen__py_kernel_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!kgen__py_kernel_type) return -1;
    return PyModule_AddObjectRef(module, "Kernel", (PyObject *)kgen__py_kernel_type);
}
