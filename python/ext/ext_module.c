/* kgen._kgen: the types, KgenError, and what the library says of families and specs. */
#include "python_ext.h"

#include <string.h>

PyObject *kgen__py_error;

/* KgenError(text), with .status = "KGEN_E_ARG" */
PyObject *kgen__py_error_of(const kgen_error *err) {
    PyObject *error = PyObject_CallFunction(kgen__py_error, "s", err->text);
    PyObject *status = PyUnicode_FromString(kgen_status_name(err->status));
    if (error && status && !PyObject_SetAttrString(error, "status", status)) {
        Py_DECREF(status);
        return error;
    }
    Py_XDECREF(status);
    Py_XDECREF(error);
    return NULL;
}

PyObject *kgen__py_raise(const kgen_error *err) {
    PyObject *error = kgen__py_error_of(err);
    if (error) PyErr_SetObject(kgen__py_error, error);
    Py_XDECREF(error);
    return NULL;
}

/* ---- what there is ---- */

static PyObject *families(PyObject *module, PyObject *unused) {
    PyObject *list = PyList_New(0);
    (void)module, (void)unused;
    for (int i = 0; list && i < KGEN_FAMILY_COUNT; i++) {
        PyObject *name = PyUnicode_FromString(kgen_family_name((kgen_family_id)i));
        if (!name || PyList_Append(list, name)) Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

static PyObject *operations(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
#define KGEN_OP(ID, number, name) "s"
    return Py_BuildValue("["
#include <kgen/scatter_ops.def>
                         "]"
#define KGEN_OP(ID, number, name) , #name
#include <kgen/scatter_ops.def>
    );
}

static const char *use_name(kgen_use use) {
    return use == KGEN_USE_IN ? "in" : use == KGEN_USE_OUT ? "out" : "inout";
}

/* Rows of kgen_args_row of a spec's launch, as dicts. */
static PyObject *arguments(PyObject *module, PyObject *args) {
    const char *line;
    kgen_spec spec;
    kgen_args of;
    kgen_args_room room;
    kgen_arg_row row;
    kgen_error err;
    (void)module;
    if (!PyArg_ParseTuple(args, "s", &line)) return NULL;
    if (kgen_spec_parse(&spec, line, &err) != KGEN_OK) return kgen__py_raise(&err);
    kgen_args_init(&of, &room, &spec);
    PyObject *list = PyList_New(0);
    for (int i = 0; list && kgen_args_row(&row, &of, i); i++) {
        PyObject *dict = Py_BuildValue("{s:s, s:s, s:s, s:z, s:s, s:s, s:s, s:i, s:i}", "name",
                                       row.name, "doc", row.doc, "use", use_name(row.use), "number",
                                       row.ctype, "type", row.type, "shape", row.shape, "when",
                                       row.when, "form", row.form, "optional", row.optional);
        if (!dict || PyList_Append(list, dict)) Py_CLEAR(list);
        Py_XDECREF(dict);
    }
    return list;
}

/* The spec line with every value filled in, as kernels of that architecture have it. */
static PyObject *resolve(PyObject *module, PyObject *args) {
    const char *line, *arch = NULL;
    const kgen_target *target = NULL;
    char out[KGEN_SPEC_LINE_MAX];
    kgen_spec spec;
    kgen_error err;
    (void)module;
    if (!PyArg_ParseTuple(args, "s|z", &line, &arch)) return NULL;
    kgen_status status = arch ? kgen_target_find(&target, arch, &err) : KGEN_OK;
    if (status == KGEN_OK) status = kgen_spec_parse(&spec, line, &err);
    if (status == KGEN_OK)
        status = target ? kgen_spec_resolve(&spec, &spec, target, &err)
                        : kgen_spec_validate(&spec, NULL, &err);
    if (status != KGEN_OK) return kgen__py_raise(&err);
    kgen_spec_print(out, &spec);
    return PyUnicode_FromString(out);
}

static PyObject *version(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyUnicode_FromString(kgen_version());
}

PyMODINIT_FUNC PyInit__kgen(void) {
    static PyMethodDef methods[] = {
        {"families", families, METH_NOARGS, "names of the families"},
        {"operations", operations, METH_NOARGS, "values of scatter's op"},
        {"arguments", arguments, METH_VARARGS, "arguments(spec): a dict for each"},
        {"resolve", resolve, METH_VARARGS, "resolve(spec, arch=None): the whole spec line"},
        {"version", version, METH_NOARGS, "of the library"},
        {NULL, NULL, 0, NULL}};
    static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                            "kgen._kgen",
                                            "libkgen, for the package kgen",
                                            -1,
                                            methods,
                                            NULL,
                                            NULL,
                                            NULL,
                                            NULL};
    PyObject *module = PyModule_Create(&definition);
    kgen__py_error = PyErr_NewExceptionWithDoc(
        "kgen.KgenError", "A refusal of the library: its text, and .status (\"KGEN_E_ARG\").",
        PyExc_RuntimeError, NULL);
    if (module && kgen__py_error && !PyObject_SetAttrString(kgen__py_error, "status", Py_None) &&
        !PyModule_AddObjectRef(module, "KgenError", kgen__py_error) &&
        !kgen__py_add_tensor(module) && !kgen__py_add_context(module) &&
        !kgen__py_add_kernel(module) && !kgen__py_add_dispatcher(module))
        return module;
    Py_XDECREF(module);
    return NULL;
}
