/* What an object of Python's says of its memory, as a kgen_tensor. Objects whose type
 * has DLPack's exchange table (torch) are read by one call without a capsule; the
 * others by kgen/describe.py, which makes a kgen.Tensor. */
#include "python_ext.h"

#include <string.h>

PyTypeObject *kgen__py_tensor_type;

/* ---- DLPack 1: the structs, and the table of functions that a type may have ---- */

typedef struct dl_tensor {
    void *data;
    kgen__place place;
    int32_t rank;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_exchange {
    uint32_t major, minor;
    struct dl_exchange *older;
    void *allocate, *from_object, *to_object; /* not used here */
    int (*describe)(void *object, dl_tensor *out);
    int (*stream)(int32_t kind, int32_t index, void **out);
} dl_exchange;

/* code, bits, type */
static const struct {
    uint8_t code, bits;
    kgen_dtype dtype;
} dl_dtypes[] = {
    {4, 16, KGEN_DTYPE_BF16},     {2, 16, KGEN_DTYPE_FP16}, {2, 32, KGEN_DTYPE_F32},
    {0, 32, KGEN_DTYPE_I32},      {0, 64, KGEN_DTYPE_I64},  {1, 8, KGEN_DTYPE_U8},
    {0, 8, KGEN_DTYPE_I8},        {6, 8, KGEN_DTYPE_U8},    {10, 8, KGEN_DTYPE_E4M3FN},
    {11, 8, KGEN_DTYPE_E4M3FNUZ}, {12, 8, KGEN_DTYPE_E5M2}, {1, 16, KGEN_DTYPE_U16},
    {1, 32, KGEN_DTYPE_I32},      {1, 64, KGEN_DTYPE_I64},
};

static int dl_dtype(kgen_dtype *out, const dl_tensor *t) {
    for (size_t i = 0; i < sizeof dl_dtypes / sizeof *dl_dtypes; i++)
        if (dl_dtypes[i].code == t->dtype.code && dl_dtypes[i].bits == t->dtype.bits &&
            t->dtype.lanes == 1) {
            *out = dl_dtypes[i].dtype;
            return 0;
        }
    PyErr_Format(PyExc_TypeError, "a tensor of DLPack's type %d with %d bits and %d lanes",
                 t->dtype.code, t->dtype.bits, t->dtype.lanes);
    return -1;
}

static int take(kgen_tensor *out, kgen__memory *memory, const dl_tensor *t) {
    if (t->rank > KGEN_TENSOR_RANK_MAX) {
        PyErr_Format(PyExc_TypeError, "a tensor of rank %d, at most %d", t->rank,
                     KGEN_TENSOR_RANK_MAX);
        return -1;
    }
    if (dl_dtype(&out->dtype, t)) return -1;
    out->data = t->data ? (char *)t->data + t->byte_offset : NULL;
    out->layout = KGEN_LAYOUT_NONE;
    out->rank = t->rank;
    *memory = (kgen__memory){t->place, 0}; /* the table does not say what may be written */
    int64_t stride = 1;
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        out->shape[i] = t->shape[i];
        out->stride[i] = t->strides ? t->strides[i] : stride;
        stride *= t->shape[i];
    }
    return 0;
}

/* ---- types that have been seen ---- */

typedef struct known_type {
    PyTypeObject *type; /* kept alive */
    const dl_exchange *table;
} known_type;

static known_type known[8];
static unsigned known_next;

/* The type's table of version 1; NULL where it has none. */
static const dl_exchange *look_up(PyTypeObject *type) {
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    const dl_exchange *table = NULL;
    if (capsule) table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    PyErr_Clear();
    Py_XDECREF(capsule);
    while (table && table->major > 1) table = table->older;
    return table && table->major == 1 && table->describe ? table : NULL;
}

static const dl_exchange *table_of(PyTypeObject *type) {
    enum { COUNT = sizeof known / sizeof *known };
    for (unsigned i = 0; i < COUNT; i++)
        if (known[i].type == type) return known[i].table;
    known_type *row = &known[known_next++ % COUNT];
    Py_XDECREF((PyObject *)row->type);
    Py_INCREF((PyObject *)type);
    *row = (known_type){type, look_up(type)};
    return row->table;
}

/* ---- reading ---- */

/* kgen.describe.<function>(argument): what seldom happens is written in Python. */
static PyObject *ask_python(const char *function, const char *format, ...) {
    PyObject *module = PyImport_ImportModule("kgen.describe"), *result = NULL;
    PyObject *callee = module ? PyObject_GetAttrString(module, function) : NULL;
    va_list list;
    va_start(list, format);
    PyObject *arguments = callee ? Py_VaBuildValue(format, list) : NULL;
    va_end(list);
    if (arguments) result = PyObject_CallObject(callee, arguments);
    Py_XDECREF(arguments);
    Py_XDECREF(callee);
    Py_XDECREF(module);
    return result;
}

static void copy_out(kgen_tensor *out, kgen__memory *memory, PyObject *object) {
    const kgen__py_tensor *t = (const kgen__py_tensor *)object;
    *out = t->tensor;
    *memory = t->memory;
}

/* (tensor, layout) and (tensor, layout, type of bytes) */
static int read_tagged(kgen_tensor *out, kgen__memory *memory, PyObject *tuple) {
    Py_ssize_t count = PyTuple_Size(tuple);
    if (count != 2 && count != 3) {
        PyErr_SetString(PyExc_TypeError, "a tensor, (tensor, layout) or (tensor, layout, dtype)");
        return -1;
    }
    if (kgen__py_read(out, memory, PyTuple_GetItem(tuple, 0))) return -1;
    PyObject *layout = PyTuple_GetItem(tuple, 1);
    if (layout != Py_None && kgen__py_layout(&out->layout, layout)) return -1;
    kgen_dtype dtype = out->dtype;
    if (count == 3 && PyTuple_GetItem(tuple, 2) != Py_None) {
        if (kgen__py_dtype(&dtype, PyTuple_GetItem(tuple, 2))) return -1;
        if (kgen_dtype_size(dtype) != kgen_dtype_size(out->dtype)) {
            PyErr_Format(PyExc_TypeError, "a tensor of %s cannot be seen as %s",
                         kgen_dtype_name(out->dtype), kgen_dtype_name(dtype));
            return -1;
        }
        out->dtype = dtype;
    }
    return 0;
}

int kgen__py_read(kgen_tensor *out, kgen__memory *memory, PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    if (type == &PyTuple_Type) return read_tagged(out, memory, object);
    if (type == kgen__py_tensor_type) {
        copy_out(out, memory, object);
        return 0;
    }
    const dl_exchange *table = table_of(type);
    if (table) {
        dl_tensor t;
        return table->describe(object, &t) ? -1 : take(out, memory, &t);
    }
    PyObject *described = ask_python("describe", "(O)", object);
    if (!described) return -1;
    copy_out(out, memory, described);
    Py_DECREF(described);
    return 0;
}

int kgen__py_current_stream(kgen_stream *out, PyObject *like, kgen__place place) {
    *out = NULL;
    if (place.kind == KGEN__ON_CPU) return 0;
    if (like && Py_TYPE(like) == &PyTuple_Type) like = PyTuple_GetItem(like, 0);
    const dl_exchange *table = like ? table_of(Py_TYPE(like)) : NULL;
    if (table && table->stream) return table->stream(place.kind, place.index, out);
    PyObject *number = ask_python("current_stream", "(i)", place.index);
    if (!number) return -1;
    *out = PyLong_AsVoidPtr(number);
    Py_DECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- names ---- */

/* The number whose name that is; -1 and an exception. `native` counts as a name too. */
static int named(PyObject *name, const char *(*of)(int), int count, const char *what) {
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    for (int i = 0; text && i < count; i++)
        if (!strcmp(text, of(i))) return i;
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%s %R: unknown", what, name);
    return -1;
}

static const char *dtype_at(int i) { return kgen_dtype_name((kgen_dtype)i); }
static const char *layout_at(int i) { return kgen_layout_name((kgen_layout)i); }

int kgen__py_dtype(kgen_dtype *out, PyObject *name) {
    int found = named(name, dtype_at, KGEN_DTYPE_COUNT, "dtype");
    *out = (kgen_dtype)found;
    return found < 0 ? -1 : 0;
}

int kgen__py_layout(kgen_layout *out, PyObject *name) {
    int found = named(name, layout_at, KGEN_LAYOUT_COUNT, "layout");
    *out = (kgen_layout)found;
    return found < 0 ? -1 : 0;
}

/* ---- kgen.Tensor ---- */

static int numbers_of(int64_t *out, PyObject *sequence, const char *name) {
    Py_ssize_t count = PySequence_Size(sequence);
    if (count < 0) return -1;
    if (count > KGEN_TENSOR_RANK_MAX) {
        PyErr_Format(PyExc_ValueError, "%s: %zd numbers, at most %d", name, count,
                     KGEN_TENSOR_RANK_MAX);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        out[i] = item ? PyLong_AsLongLong(item) : 0;
        Py_XDECREF(item);
        if (PyErr_Occurred()) return -1;
    }
    return (int)count;
}

static void dense_strides(kgen_tensor *t) {
    int64_t stride = 1;
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        t->stride[i] = stride;
        stride *= t->shape[i];
    }
}

static int fill(kgen__py_tensor *self, PyObject *address, PyObject *dtype, PyObject *shape,
                PyObject *strides, PyObject *layout) {
    kgen_tensor *t = &self->tensor;
    t->data = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred() || kgen__py_dtype(&t->dtype, dtype)) return -1;
    if (layout != Py_None && kgen__py_layout(&t->layout, layout)) return -1;
    t->rank = numbers_of(t->shape, shape, "shape");
    if (t->rank < 0) return -1;
    dense_strides(t);
    if (strides == Py_None) return 0;
    int count = numbers_of(t->stride, strides, "strides");
    if (count >= 0 && count != t->rank)
        PyErr_Format(PyExc_ValueError, "strides: %d numbers, %d expected", count, t->rank);
    return count == t->rank ? 0 : -1;
}

static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"address", "dtype", "shape",    "strides", "layout",
                            "place",   "owner", "readonly", NULL};
    PyObject *address, *dtype, *shape, *strides = Py_None, *layout = Py_None, *owner = Py_None;
    kgen__memory memory = {{KGEN__ON_CPU, 0}, 0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|OO(ii)Op", names, &address, &dtype, &shape,
                                     &strides, &layout, &memory.place.kind, &memory.place.index,
                                     &owner, &memory.readonly))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    kgen__py_tensor *self = (kgen__py_tensor *)allocate(type, 0);
    if (!self) return NULL;
    self->memory = memory;
    Py_INCREF(owner);
    self->owner = owner;
    if (fill(self, address, dtype, shape, strides, layout)) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static void tensor_free(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((kgen__py_tensor *)self)->owner);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

/* Reads any tensor once, so that launches need not: kgen.Tensor.of(x, layout, dtype). */
static PyObject *tensor_of(PyObject *type, PyObject *args) {
    PyObject *object, *layout = Py_None, *dtype = Py_None;
    if (!PyArg_ParseTuple(args, "O|OO", &object, &layout, &dtype)) return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc);
    kgen__py_tensor *self = (kgen__py_tensor *)allocate((PyTypeObject *)type, 0);
    PyObject *tagged = self ? PyTuple_Pack(3, object, layout, dtype) : NULL;
    if (!tagged || read_tagged(&self->tensor, &self->memory, tagged)) {
        Py_XDECREF(tagged);
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    Py_DECREF(tagged);
    Py_INCREF(object);
    self->owner = object;
    return (PyObject *)self;
}

static PyObject *tensor_repr(PyObject *self) {
    const kgen_tensor *t = &((const kgen__py_tensor *)self)->tensor;
    char shape[160] = "";
    size_t used = 0;
    for (int32_t i = 0; i < t->rank; i++)
        used +=
            (size_t)snprintf(shape + used, sizeof shape - used, "[%lld]", (long long)t->shape[i]);
    return PyUnicode_FromFormat("kgen.Tensor(%s%s, %s)", kgen_dtype_name(t->dtype), shape,
                                kgen_layout_name(t->layout));
}

static PyObject *get_address(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromVoidPtr(((const kgen__py_tensor *)self)->tensor.data);
}

/* Bytes from the first element to the last one, for programs that see them otherwise. */
static PyObject *get_nbytes(PyObject *self, void *unused) {
    const kgen_tensor *t = &((const kgen__py_tensor *)self)->tensor;
    int64_t last = 0;
    (void)unused;
    for (int32_t i = 0; i < t->rank; i++) {
        if (!t->shape[i]) return PyLong_FromLong(0);
        last += (t->shape[i] - 1) * t->stride[i];
    }
    return PyLong_FromLongLong((last + 1) * kgen_dtype_size(t->dtype));
}

int kgen__py_is_dense(const kgen_tensor *t) {
    int64_t step = 1;
    int dense = 1;
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        dense &= t->shape[i] == 1 || t->stride[i] == step;
        step *= t->shape[i];
    }
    return dense || step == 0;
}

static PyObject *get_dense(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(kgen__py_is_dense(&((const kgen__py_tensor *)self)->tensor));
}

static PyObject *get_place(PyObject *self, void *unused) {
    const kgen__place *place = &((const kgen__py_tensor *)self)->memory.place;
    (void)unused;
    return Py_BuildValue("(ii)", place->kind, place->index);
}

static PyObject *get_readonly(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(((const kgen__py_tensor *)self)->memory.readonly);
}

int kgen__py_add_tensor(PyObject *module) {
    static PyMethodDef methods[] = {
        {"of", tensor_of, METH_VARARGS | METH_CLASS,
         "of(tensor, layout=None, dtype=None): what a tensor says of itself, read once"},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef attributes[] = {
        {"address", get_address, NULL, "of its first element", NULL},
        {"nbytes", get_nbytes, NULL, "from its first element to its last", NULL},
        {"dense", get_dense, NULL, "whether its elements lie in order without gaps", NULL},
        {"place", get_place, NULL, "DLPack's numbers of its device", NULL},
        {"readonly", get_readonly, NULL, "whether its owner does not want it written", NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    static PyType_Slot slots[] = {
        {Py_tp_new, tensor_new},
        {Py_tp_getset, attributes},
        {Py_tp_dealloc, tensor_free},
        {Py_tp_repr, tensor_repr},
        {Py_tp_methods, methods},
        {Py_tp_doc, "An address with type, shape, strides in elements, and layout."},
        {0, NULL}};
    static PyType_Spec spec = {"kgen.Tensor", sizeof(kgen__py_tensor), 0, Py_TPFLAGS_DEFAULT,
                               slots};
    kgen__py_tensor_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!kgen__py_tensor_type) return -1;
    return PyModule_AddObjectRef(module, "Tensor", (PyObject *)kgen__py_tensor_type);
}
