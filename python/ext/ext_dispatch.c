/* kgen.Dispatcher: one launch whose kernel follows from its tensors. The facts of the tensors
 * that a spec line depends on are compared as bytes, so a drop-in reads each tensor once. */
#include "python_ext.h"

#include <string.h>

typedef struct py_dispatcher {
    PyObject ob_base;
    kgen__table table;
    PyObject *choose;  /* choose(key, {name: value}) -> Kernel */
    PyObject *kernels; /* {(key, facts): Kernel} */
} py_dispatcher;

enum { FACTS_MAX = KGEN__SLOTS_MAX * (4 + (KGEN_TENSOR_RANK_MAX - 1) * 8) + 8 };

/* Of each tensor its argument, type, layout and rank; of those that say so their sizes but
 * the first, which counts tokens, pages or sequences. */
static PyObject *facts_of(const py_dispatcher *self, const kgen__call *c) {
    char facts[FACTS_MAX], *at = facts;
    kgen__place place = c->given ? c->memory[0].place : (kgen__place){0, 0};
    memcpy(at, &place, sizeof place);
    at += sizeof place;
    for (int i = 0; i < c->given; i++) {
        if (c->slots[i] < 0) continue;
        const kgen__slot *s = &self->table.slots[c->slots[i]];
        const kgen_tensor *t = (const kgen_tensor *)((const char *)&c->room + s->offset);
        *at++ = (char)c->slots[i];
        *at++ = (char)t->dtype;
        *at++ = (char)t->layout;
        *at++ = (char)t->rank;
        if (!s->shaped || t->rank < 2) continue;
        size_t bytes = (size_t)(t->rank - 1) * sizeof *t->shape;
        memcpy(at, t->shape + 1, bytes);
        at += bytes;
    }
    return PyBytes_FromStringAndSize(facts, at - facts);
}

static PyObject *given_of(PyObject *const *values, PyObject *names) {
    PyObject *given = PyDict_New();
    Py_ssize_t count = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; given && i < count; i++)
        if (PyDict_SetItem(given, PyTuple_GetItem(names, i), values[i])) Py_CLEAR(given);
    return given;
}

static PyObject *choose(py_dispatcher *self, PyObject *both, PyObject *key, PyObject *const *values,
                        PyObject *names) {
    PyObject *given = given_of(values, names);
    PyObject *kernel = given ? PyObject_CallFunctionObjArgs(self->choose, key, given, NULL) : NULL;
    Py_XDECREF(given);
    if (kernel && Py_TYPE(kernel) != kgen__py_kernel_type) {
        PyErr_SetString(PyExc_TypeError, "a Dispatcher chooses a kgen.Kernel");
        Py_CLEAR(kernel);
    }
    if (kernel && PyDict_SetItem(self->kernels, both, kernel)) Py_CLEAR(kernel);
    return kernel;
}

static PyObject *kernel_for(py_dispatcher *self, const kgen__call *c, PyObject *key,
                            PyObject *const *values, PyObject *names) {
    PyObject *facts = facts_of(self, c);
    PyObject *both = facts ? PyTuple_Pack(2, key, facts) : NULL;
    PyObject *kernel = both ? PyDict_GetItemWithError(self->kernels, both) : NULL;
    Py_XINCREF(kernel);
    if (!kernel && both && !PyErr_Occurred()) kernel = choose(self, both, key, values, names);
    Py_XDECREF(both);
    Py_XDECREF(facts);
    return kernel;
}

static PyObject *run(PyObject *object, PyObject *const *values, Py_ssize_t positional,
                     PyObject *names, int check_only) {
    py_dispatcher *self = (py_dispatcher *)object;
    kgen__call c;
    if (positional != 1) {
        PyErr_SetString(PyExc_TypeError, "a key, and arguments by name");
        return NULL;
    }
    if (kgen__call_read(&c, &self->table, values + 1, names)) return NULL;
    PyObject *kernel = kernel_for(self, &c, values[0], values + 1, names);
    if (!kernel) return NULL;
    PyObject *result = kgen__py_kernel_run(kernel, &c, &self->table, check_only);
    Py_DECREF(kernel);
    return result;
}

static PyObject *dispatcher_launch(PyObject *object, PyObject *const *values, Py_ssize_t positional,
                                   PyObject *names) {
    return run(object, values, positional, names, 0);
}

static PyObject *dispatcher_check(PyObject *object, PyObject *const *values, Py_ssize_t positional,
                                  PyObject *names) {
    return run(object, values, positional, names, 1);
}

/* ---- the type ---- */

static int mark_shaped(py_dispatcher *self, PyObject *shaped) {
    Py_ssize_t count = PySequence_Size(shaped);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = PySequence_GetItem(shaped, i);
        int slot = name ? kgen__table_find(&self->table, name) : KGEN__NO_SLOT;
        Py_XDECREF(name);
        if (slot == KGEN__NO_SLOT) return -1;
        if (slot >= 0) self->table.slots[slot].shaped = 1;
    }
    return count < 0 ? -1 : 0;
}

static int dispatcher_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"spec", "shaped", "choose", NULL};
    py_dispatcher *self = (py_dispatcher *)object;
    const char *line;
    PyObject *shaped, *chooser;
    kgen_spec spec;
    kgen_error err;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sOO", names, &line, &shaped, &chooser))
        return -1;
    if (self->choose) {
        PyErr_SetString(PyExc_RuntimeError, "a Dispatcher is made once");
        return -1;
    }
    if (kgen_spec_parse(&spec, line, &err) != KGEN_OK) {
        kgen__py_raise(&err);
        return -1;
    }
    Py_INCREF(chooser);
    self->choose = chooser;
    self->kernels = PyDict_New();
    if (!self->kernels || kgen__table_fill(&self->table, &spec)) return -1;
    return mark_shaped(self, shaped);
}

static void dispatcher_free(PyObject *object) {
    py_dispatcher *self = (py_dispatcher *)object;
    PyTypeObject *type = Py_TYPE(object);
    kgen__table_clear(&self->table);
    Py_XDECREF(self->choose);
    Py_XDECREF(self->kernels);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF((PyObject *)type);
}

int kgen__py_add_dispatcher(PyObject *module) {
    static PyMethodDef methods[] = {
        {"launch", (PyCFunction)(void (*)(void))dispatcher_launch, METH_FASTCALL | METH_KEYWORDS,
         "launch(key, name=tensor or number, ...): of the kernel that fits"},
        {"check", (PyCFunction)(void (*)(void))dispatcher_check, METH_FASTCALL | METH_KEYWORDS,
         "the checks of launch alone"},
        {NULL, NULL, 0, NULL}};
    static PyType_Slot slots[] = {
        {Py_tp_init, dispatcher_init},
        {Py_tp_dealloc, dispatcher_free},
        {Py_tp_methods, methods},
        {Py_tp_doc, "Dispatcher(spec, shaped, choose): launches of a family whose kernel follows "
                    "from a key and from types, layouts and ranks of the tensors, and of those "
                    "in `shaped` from all sizes but the first. choose(key, {name: value}) gives "
                    "the Kernel of a combination that is new."},
        {0, NULL}};
    static PyType_Spec spec = {"kgen.Dispatcher", sizeof(py_dispatcher), 0, Py_TPFLAGS_DEFAULT,
                               slots};
    PyObject *type = PyType_FromSpec(&spec);
    int bad = !type || PyModule_AddObjectRef(module, "Dispatcher", type);
    Py_XDECREF(type);
    return bad ? -1 : 0;
}
