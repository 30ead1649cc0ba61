/* What the files of the extension module share. Python's stable ABI of 3.10: one
 * binary serves every later version. */
#ifndef KGEN_PYTHON_EXT_PYTHON_EXT_H
#define KGEN_PYTHON_EXT_PYTHON_EXT_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <kgen/kgen.h>

/* Where a tensor lies: numbers of DLPack. */
typedef struct kgen__place {
    int32_t kind, index;
} kgen__place;

enum {
    KGEN__ON_CPU = 1,
    KGEN__ON_CUDA = 2,
    KGEN__ON_CUDA_HOST = 3,
    KGEN__ON_ROCM = 10,
    KGEN__ON_ROCM_HOST = 11,
    KGEN__ON_CUDA_MANAGED = 13,
};

/* What a tensor of the library does not say of its memory. */
typedef struct kgen__memory {
    kgen__place place;
    int readonly; /* its owner does not want it written */
} kgen__memory;

/* A tensor whose facts are read once: kgen.Tensor. */
typedef struct kgen__py_tensor {
    PyObject ob_base;
    kgen_tensor tensor;
    kgen__memory memory;
    PyObject *owner; /* of the memory */
} kgen__py_tensor;

/* The memory in which workgroups of one launch meet. One for each stream. */
typedef struct kgen__space {
    struct kgen__space *next;
    kgen_stream stream;
    void *memory;
    size_t bytes;
    int busy; /* the cpu device computes in it, and another thread may come meanwhile */
} kgen__space;

typedef struct kgen__py_context {
    PyObject ob_base;
    kgen_context *ctx; /* NULL: closed */
    int inside;        /* calls that let other threads in: nobody closes it meanwhile */
    PyObject *log;
    kgen__place place;   /* of its device */
    kgen__space *spaces; /* those in use first */
    kgen__space *spare;  /* for the next stream that captures; NULL: none */
    kgen__space *old;    /* too small now; graphs may hold them */
} kgen__py_context;

/* ---- calls by name ---- */

enum { KGEN__SLOTS_MAX = KGEN_ARGS_TENSORS_MAX + 16 };
enum { KGEN__STREAM = -1, KGEN__WORKSPACE = -2, KGEN__NO_SLOT = -3 };

typedef enum kgen__slot_kind {
    KGEN__TENSOR,
    KGEN__FLOAT,
    KGEN__INT32,
    KGEN__INT64,
} kgen__slot_kind;

typedef struct kgen__slot {
    PyObject *name; /* interned */
    size_t offset;
    kgen__slot_kind kind;
    int shaped;  /* kernels depend on its sizes */
    int written; /* by this kernel; 0 in the table of a Dispatcher */
} kgen__slot;

/* The arguments of a family, or of an op of scatter. */
typedef struct kgen__table {
    kgen_family_id family;
    kgen_args_room *empty; /* no argument given, the op tagged */
    size_t bytes;          /* of it that the family has */
    int count;
    kgen__slot slots[KGEN__SLOTS_MAX];
    PyObject *names; /* of the last call, a constant of its call site */
    int named[KGEN__SLOTS_MAX];
} kgen__table;

typedef struct kgen__call {
    kgen_args args;
    kgen_args_room room;
    kgen_stream stream;
    int has_stream;
    PyObject *like; /* a tensor whose program has a current stream */
    int given;      /* tensors, the workspace too */
    int slots[KGEN__SLOTS_MAX];
    kgen__memory memory[KGEN__SLOTS_MAX];
    kgen__space *space; /* that the workspace is in; NULL: the caller's, or none */
} kgen__call;

/* -1: an exception is set. A table that failed is cleared all the same. */
int kgen__table_fill(kgen__table *table, const kgen_spec *spec);
/* Says of each slot whether kernels of that spec, which is resolved, write it. */
void kgen__table_mark_written(kgen__table *table, const kgen_spec *spec);
void kgen__table_clear(kgen__table *table);
int kgen__table_find(const kgen__table *table, PyObject *name);
int kgen__call_read(kgen__call *c, kgen__table *table, PyObject *const *values, PyObject *names);
int kgen__call_check_places(const kgen__call *c, const kgen__table *table,
                            const kgen__py_context *owner);
/* Refuses memory that may not be written where the kernel whose table this is writes. */
int kgen__call_check_written(const kgen__call *c, const kgen__table *of_kernel);
/* Launches, or only checks, what was read with a table of the kernel's family. */
PyObject *kgen__py_kernel_run(PyObject *kernel, kgen__call *c, const kgen__table *table,
                              int check_only);

extern PyTypeObject *kgen__py_tensor_type, *kgen__py_kernel_type;
extern PyObject *kgen__py_error;

/* Raises KgenError of *err; NULL. */
PyObject *kgen__py_raise(const kgen_error *err);
PyObject *kgen__py_error_of(const kgen_error *err);

/* Fills *out with what `object` says of itself. -1: an exception is set. */
int kgen__py_read(kgen_tensor *out, kgen__memory *memory, PyObject *object);
/* Row-major without gaps, as memory has to be that is seen as another type, or as bytes. */
int kgen__py_is_dense(const kgen_tensor *t);
/* The stream that the program of `like` (a tensor) works in on that device. */
int kgen__py_current_stream(kgen_stream *out, PyObject *like, kgen__place place);

/* 0 and *out: a number that a value of the table has as its name. */
int kgen__py_dtype(kgen_dtype *out, PyObject *name);
int kgen__py_layout(kgen_layout *out, PyObject *name);

/* Around a call that lets other threads in. */
PyThreadState *kgen__py_enter(kgen__py_context *self);
void kgen__py_leave(kgen__py_context *self, PyThreadState *thread);

/* Refuses the number of a stream where there are none: on the cpu device. */
int kgen__py_check_stream(kgen_stream stream, const kgen__py_context *self);

/* A workspace of the stream with at least so many bytes, in which no other thread computes. */
int kgen__py_space(kgen__space **out, kgen__py_context *self, kgen_stream stream, size_t bytes);

PyObject *kgen__py_kernel_of(kgen__py_context *owner, kgen_kernel *kernel);

/* The heap types, made once by the module. */
int kgen__py_add_tensor(PyObject *module);
int kgen__py_add_context(PyObject *module);
int kgen__py_add_kernel(PyObject *module);
int kgen__py_add_dispatcher(PyObject *module);

#endif
