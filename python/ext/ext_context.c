/* kgen.Context: an open device, its prepared kernels and the workspaces of its streams. */
#include "python_ext.h"

#include <stdlib.h>
#include <string.h>

static const char *const mode_names[] = {"auto", "warn", "strict", "offline"};

/* ---- open and close ---- */

static void tell(kgen_log_level level, const char *text, void *user) {
    const kgen__py_context *self = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *done = PyObject_CallFunction(self->log, "ss",
                                           level == KGEN_LOG_WARNING ? "warning" : "info", text);
    if (!done) PyErr_WriteUnraisable(self->log);
    Py_XDECREF(done);
    PyGILState_Release(gil);
}

static int mode_of(kgen_mode *out, const char *name) {
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, mode_names[i])) {
            *out = (kgen_mode)i;
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "mode %s: one of auto, warn, strict, offline", name);
    return -1;
}

/* "cuda:1 NVIDIA H200 ..." -> its place */
static kgen__place place_of(const kgen_context *ctx) {
    kgen_vendor vendor = kgen_context_target(ctx)->vendor;
    const char *colon = strchr(kgen_context_device(ctx), ':');
    if (vendor == KGEN_VENDOR_CPU) return (kgen__place){KGEN__ON_CPU, 0};
    return (kgen__place){vendor == KGEN_VENDOR_AMD ? KGEN__ON_ROCM : KGEN__ON_CUDA,
                         colon ? atoi(colon + 1) : 0};
}

static int context_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"device", "mode", "cache_dir", "tuning", "driver", "log", NULL};
    kgen__py_context *self = (kgen__py_context *)object;
    kgen_open_options options = {.size = sizeof options};
    const char *mode = "auto";
    PyObject *log = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|z$szzzO", names, &options.device, &mode,
                                     &options.cache_dir, &options.tuning, &options.driver, &log))
        return -1;
    if (mode_of(&options.mode, mode)) return -1;
    if (self->ctx) {
        PyErr_SetString(PyExc_RuntimeError, "this context is open");
        return -1;
    }
    if (log != Py_None) {
        Py_INCREF(log);
        self->log = log;
        options.log = tell;
        options.log_user = self;
    }
    kgen_error err;
    PyThreadState *thread = PyEval_SaveThread();
    kgen_status status = kgen_open(&self->ctx, &options, &err);
    PyEval_RestoreThread(thread);
    if (status != KGEN_OK) {
        kgen__py_raise(&err);
        return -1;
    }
    self->place = place_of(self->ctx);
    return 0;
}

static void free_spaces(kgen_context *ctx, kgen__space **list) {
    while (*list) {
        kgen__space *space = *list;
        *list = space->next;
        kgen_memory_free(ctx, space->memory);
        free(space);
    }
}

PyThreadState *kgen__py_enter(kgen__py_context *self) {
    self->inside++;
    return PyEval_SaveThread();
}

void kgen__py_leave(kgen__py_context *self, PyThreadState *thread) {
    PyEval_RestoreThread(thread);
    self->inside--;
}

static PyObject *context_close(PyObject *object, PyObject *unused) {
    kgen__py_context *self = (kgen__py_context *)object;
    (void)unused;
    if (self->inside) {
        PyErr_SetString(PyExc_RuntimeError, "close: a prepare, launch or synchronize is under way");
        return NULL;
    }
    if (self->ctx) {
        kgen_context *ctx = self->ctx;
        self->ctx = NULL;
        free_spaces(ctx, &self->spaces);
        free_spaces(ctx, &self->spare);
        free_spaces(ctx, &self->old);
        kgen_close(ctx);
    }
    Py_RETURN_NONE;
}

/* Without close() the device stays open: launches may be under way, and graphs that hold
 * its kernels may be launched again. */
static void context_free(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    if (!((kgen__py_context *)object)->ctx) Py_XDECREF(((kgen__py_context *)object)->log);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF((PyObject *)type);
}

static kgen_context *opened(PyObject *object) {
    kgen_context *ctx = ((kgen__py_context *)object)->ctx;
    if (!ctx) PyErr_SetString(PyExc_RuntimeError, "this context is closed");
    return ctx;
}

/* ---- streams ---- */

int kgen__py_check_stream(kgen_stream stream, const kgen__py_context *self) {
    if (!stream || self->place.kind != KGEN__ON_CPU) return 0;
    PyErr_Format(kgen__py_error, "stream=%p: %s has no streams for Python", stream,
                 kgen_context_device(self->ctx));
    return -1;
}

/* None: the default one. */
static int stream_of(kgen_stream *out, const kgen__py_context *self, PyObject *number) {
    *out = number == Py_None ? NULL : PyLong_AsVoidPtr(number);
    return PyErr_Occurred() ? -1 : kgen__py_check_stream(*out, self);
}

/* ---- prepare and find ---- */

static int request_of(kgen_request *out, PyObject *row) {
    const char *line;
    kgen_error err;
    out->size = sizeof *out;
    if (!PyArg_ParseTuple(row, "s|iii", &line, &out->problem.batch, &out->problem.context,
                          &out->problem.heads))
        return -1;
    if (kgen_spec_parse(&out->spec, line, &err) == KGEN_OK) return 0;
    kgen__py_raise(&err);
    return -1;
}

typedef struct watcher {
    PyObject *progress; /* may be NULL */
    int stop;           /* an exception waits */
    PyObject *type, *value, *trace;
} watcher;

/* Ctrl-C, or an exception of `progress`, ends compilers; it is raised afterwards. */
static void keep_exception(watcher *w) {
    if (w->stop) {
        PyErr_Clear();
        return;
    }
    PyErr_Fetch(&w->type, &w->value, &w->trace);
    w->stop = 1;
}

static int cancelled(void *user) {
    watcher *w = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    if (!w->stop && PyErr_CheckSignals()) keep_exception(w);
    PyGILState_Release(gil);
    return w->stop;
}

static void progressed(const kgen_request *request, size_t done, size_t total, void *user) {
    watcher *w = user;
    char line[KGEN_SPEC_LINE_MAX];
    if (!w->progress) return;
    kgen_spec_print(line, &request->spec);
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *result = PyObject_CallFunction(w->progress, "snni", line, (Py_ssize_t)done,
                                             (Py_ssize_t)total, request->compiled);
    if (!result) keep_exception(w);
    Py_XDECREF(result);
    PyGILState_Release(gil);
}

/* A Kernel or a KgenError for each request. */
static PyObject *results_of(kgen__py_context *self, const kgen_request *requests,
                            Py_ssize_t count) {
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        const kgen_request *r = &requests[i];
        PyObject *item =
            r->kernel ? kgen__py_kernel_of(self, r->kernel) : kgen__py_error_of(&r->error);
        if (!item || PyList_SetItem(list, i, item)) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *prepare_all(kgen__py_context *self, kgen_request *requests, Py_ssize_t count,
                             kgen_prepare_options *options) {
    watcher *w = options->user;
    kgen_error err = {KGEN_OK, ""};
    PyThreadState *thread = kgen__py_enter(self);
    kgen_status status = kgen_prepare_for(self->ctx, requests, (size_t)count, options, &err);
    kgen__py_leave(self, thread);
    if (w->stop) {
        PyErr_Restore(w->type, w->value, w->trace);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count && status != KGEN_OK; i++) /* refused as a whole */
        if (!requests[i].kernel && requests[i].error.status == KGEN_OK) return kgen__py_raise(&err);
    return results_of(self, requests, count);
}

static PyObject *context_prepare(PyObject *object, PyObject *args) {
    PyObject *rows, *stream = Py_None, *progress = Py_None, *list = NULL;
    kgen_prepare_options options = {.size = sizeof options, .cancel = cancelled};
    if (!opened(object) ||
        !PyArg_ParseTuple(args, "O|OiO", &rows, &stream, &options.workers, &progress))
        return NULL;
    watcher w = {.progress = progress == Py_None ? NULL : progress};
    options.progress = progressed;
    options.user = &w;
    if (stream_of(&options.stream, (kgen__py_context *)object, stream)) return NULL;
    Py_ssize_t count = PySequence_Size(rows);
    if (count < 0) return NULL;
    kgen_request *requests = calloc((size_t)count + 1, sizeof *requests);
    if (!requests) return PyErr_NoMemory();
    int bad = 0;
    for (Py_ssize_t i = 0; i < count && !bad; i++) {
        PyObject *row = PySequence_GetItem(rows, i);
        bad = !row || request_of(&requests[i], row);
        Py_XDECREF(row);
    }
    if (!bad) list = prepare_all((kgen__py_context *)object, requests, count, &options);
    free(requests);
    return list;
}

static PyObject *context_find(PyObject *object, PyObject *args) {
    kgen_request request = {0};
    if (!opened(object) || request_of(&request, args)) return NULL;
    const kgen_problem *p = &request.problem;
    kgen_kernel *kernel = kgen_find(((kgen__py_context *)object)->ctx, &request.spec,
                                    p->batch || p->context || p->heads ? p : NULL);
    if (kernel) return kgen__py_kernel_of((kgen__py_context *)object, kernel);
    Py_RETURN_NONE;
}

/* ---- workspaces ---- */

static kgen__space *new_space(kgen__py_context *self, kgen_stream stream, size_t bytes) {
    kgen_error err;
    kgen__space *space = calloc(1, sizeof *space);
    if (!space) {
        PyErr_NoMemory();
        return NULL;
    }
    *space = (kgen__space){NULL, stream, NULL, bytes, 0};
    if (kgen_memory_alloc(self->ctx, &space->memory, bytes, &err) == KGEN_OK &&
        kgen_workspace_init(self->ctx, space->memory, bytes, stream, &err) == KGEN_OK &&
        kgen_stream_sync(self->ctx, stream, &err) == KGEN_OK)
        return space;
    kgen_memory_free(self->ctx, space->memory);
    free(space);
    kgen__py_raise(&err);
    return NULL;
}

/* Takes the stream's workspace out of the list and keeps it for graphs. */
static void retire(kgen__py_context *self, kgen__space **link) {
    kgen__space *space = *link;
    *link = space->next;
    space->next = self->old;
    self->old = space;
}

/* 1: the stream of torch's captures; -1: an exception. */
static int captures(const kgen__py_context *self) {
    if (self->place.kind == KGEN__ON_CPU) return 0;
    PyObject *module = PyImport_ImportModule("kgen.describe");
    PyObject *answer = module ? PyObject_CallMethod(module, "is_capturing", NULL) : NULL;
    int yes = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    Py_XDECREF(module);
    return yes;
}

static kgen__space *take_spare(kgen__py_context *self, kgen_stream stream, size_t bytes) {
    kgen__space *space = self->spare;
    if (!space || space->bytes < bytes) {
        PyErr_Format(kgen__py_error,
                     "workspace: %zu bytes wanted while the stream captures, %zu there; launch "
                     "once before, or Context.reserve(bytes, stream)",
                     bytes, space ? space->bytes : (size_t)0);
        return NULL;
    }
    self->spare = NULL;
    space->stream = stream;
    return space;
}

/* Nothing may be allocated while a stream captures, so the first stream that needs a
 * workspace also makes one for the stream that will capture. */
static kgen__space *grown(kgen__py_context *self, kgen_stream stream, size_t bytes) {
    int capturing = captures(self);
    if (capturing) return capturing < 0 ? NULL : take_spare(self, stream, bytes);
    int wants_spare = self->place.kind != KGEN__ON_CPU;
    if (wants_spare && (!self->spare || self->spare->bytes < bytes)) {
        if (self->spare) retire(self, &self->spare);
        self->spare = new_space(self, stream, bytes);
        if (!self->spare) return NULL;
    }
    return new_space(self, stream, bytes);
}

/* Where the stream's workspace hangs that no thread computes in, or else the next one may. */
static kgen__space **free_space(kgen__py_context *self, kgen_stream stream) {
    kgen__space **link = &self->spaces;
    while (*link && ((*link)->stream != stream || (*link)->busy)) link = &(*link)->next;
    return link;
}

int kgen__py_space(kgen__space **out, kgen__py_context *self, kgen_stream stream, size_t bytes) {
    kgen__space *space = *free_space(self, stream);
    if (space && space->bytes >= bytes) {
        *out = space;
        return 0;
    }
    space = grown(self, stream, bytes);
    if (!space) return -1;
    kgen__space **link = free_space(self, stream); /* anew: to ask Python lets other threads in */
    if (*link) retire(self, link);
    space->next = self->spaces;
    self->spaces = space;
    *out = space;
    return 0;
}

static PyObject *context_reserve(PyObject *object, PyObject *args) {
    Py_ssize_t bytes;
    PyObject *stream = Py_None;
    kgen__space *space;
    if (!opened(object) || !PyArg_ParseTuple(args, "n|O", &bytes, &stream)) return NULL;
    kgen_stream of;
    if (stream_of(&of, (kgen__py_context *)object, stream) ||
        kgen__py_space(&space, (kgen__py_context *)object, of, (size_t)bytes))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *context_sync(PyObject *object, PyObject *args) {
    PyObject *stream = Py_None;
    kgen_error err;
    kgen_context *ctx = opened(object);
    if (!ctx || !PyArg_ParseTuple(args, "|O", &stream)) return NULL;
    kgen_stream of;
    if (stream_of(&of, (kgen__py_context *)object, stream)) return NULL;
    PyThreadState *thread = kgen__py_enter((kgen__py_context *)object);
    kgen_status status = kgen_stream_sync(ctx, of, &err);
    kgen__py_leave((kgen__py_context *)object, thread);
    if (status != KGEN_OK) return kgen__py_raise(&err);
    Py_RETURN_NONE;
}

/* ---- attributes ---- */

static PyObject *get_device(PyObject *object, void *unused) {
    const kgen_context *ctx = opened(object);
    (void)unused;
    return ctx ? PyUnicode_FromString(kgen_context_device(ctx)) : NULL;
}

static PyObject *get_target(PyObject *object, void *unused) {
    const kgen_context *ctx = opened(object);
    (void)unused;
    return ctx ? PyUnicode_FromString(kgen_context_target(ctx)->name) : NULL;
}

static PyObject *get_driver(PyObject *object, void *unused) {
    const kgen_context *ctx = opened(object);
    (void)unused;
    return ctx ? PyUnicode_FromString(kgen_context_driver(ctx)) : NULL;
}

static PyObject *get_fp8(PyObject *object, void *unused) {
    const kgen_context *ctx = opened(object);
    (void)unused;
    return ctx ? PyUnicode_FromString(kgen_dtype_name(
                     kgen_context_target(ctx)->fp8_fnuz ? KGEN_DTYPE_E4M3FNUZ : KGEN_DTYPE_E4M3FN))
               : NULL;
}

int kgen__py_add_context(PyObject *module) {
    static PyMethodDef methods[] = {
        {"close", context_close, METH_NOARGS,
         "Unloads every kernel. No stream or graph may use one any more."},
        {"_prepare", context_prepare, METH_VARARGS, "see kgen.Context.prepare_all"},
        {"find", context_find, METH_VARARGS,
         "find(spec, batch=0, context=0, heads=0): a prepared Kernel, or None"},
        {"reserve", context_reserve, METH_VARARGS,
         "reserve(bytes, stream=None): a workspace for the launches of a stream"},
        {"synchronize", context_sync, METH_VARARGS, "synchronize(stream=None)"},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef attributes[] = {
        {"device", get_device, NULL, "\"cuda:0 NVIDIA H200 (sm_90, 132 units)\"", NULL},
        {"target", get_target, NULL, "\"sm_90\"", NULL},
        {"driver", get_driver, NULL, "the driver library in use; \"\" of the cpu device", NULL},
        {"fp8", get_fp8, NULL, "the target's own e4m3: \"e4m3fn\" or \"e4m3fnuz\"", NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    static PyType_Slot slots[] = {{Py_tp_init, context_init},
                                  {Py_tp_dealloc, context_free},
                                  {Py_tp_methods, methods},
                                  {Py_tp_getset, attributes},
                                  {0, NULL}};
    static PyType_Spec spec = {"kgen._kgen.Context", sizeof(kgen__py_context), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    PyObject *type = PyType_FromSpec(&spec);
    int bad = !type || PyModule_AddObjectRef(module, "Context", type);
    Py_XDECREF(type);
    return bad ? -1 : 0;
}
