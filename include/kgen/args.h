/* What a launch takes: the family, and where its arguments are. */
#ifndef KGEN_ARGS_H
#define KGEN_ARGS_H

#include "tensor.h"

#define KGEN_FAMILY_HEADER(name) KGEN_QUOTED(name##_args.h)
#include "families.def"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kgen_args {
    kgen_family_id family; /* that of the kernel */
    void *workspace;       /* kgen_workspace_size bytes, 256-byte aligned, prepared
                        once by kgen_workspace_init; NULL where the size is 0 */
    size_t workspace_bytes;
    union {        /* the arguments, which the caller owns; a launch keeps no address of them */
        void *any; /* of whichever family */
#define KGEN_FAMILY(name, NAME) kgen_##name##_args *name;
#include "families.def"
    };
} kgen_args;

/* Memory for the arguments of any one family, for programs that handle them all. */
typedef union kgen_args_room {
#define KGEN_FAMILY(name, NAME) kgen_##name##_args name;
#include "families.def"
} kgen_args_room;

/* What launches do with a tensor. OUT: its old contents are never looked at. */
typedef enum kgen_use { KGEN_USE_IN, KGEN_USE_OUT, KGEN_USE_INOUT } kgen_use;

enum { KGEN_ARGS_TENSORS_MAX = 64 };

/* Zeroes in `room`, tagged with the family, and the op, of the spec. */
KGEN_API void kgen_args_init(kgen_args *args, kgen_args_room *room, const kgen_spec *spec);
/* A copy whose arguments are in `room`. Assignment copies the address alone. */
KGEN_API void kgen_args_copy(kgen_args *out, kgen_args_room *room, const kgen_args *args);

/* The tensors that arguments of these tags have, 0 .. count - 1, in the order of
 * <family>_args.def. Pure; NULL, 0 and KGEN_USE_IN out of range, and for scatter
 * without its struct, which says the op. */
KGEN_API int kgen_args_count(const kgen_args *args);
KGEN_API kgen_tensor *kgen_args_tensor(const kgen_args *args, int index);
KGEN_API const char *kgen_args_name(const kgen_args *args, int index);
KGEN_API kgen_use kgen_args_use(const kgen_args *args, int index);

/* What kernels of a spec want of a tensor. */
typedef struct kgen_arg {
    const char *name, *doc;
    kgen_use use;
    kgen_dtype dtype;
    kgen_layout layout; /* 0: any */
    int optional;       /* it may have no data */
    int by_layout;      /* its shape is that of kgen_layout or kgen_descale; rank 0 here */
    int32_t rank;
    const char *size[KGEN_TENSOR_RANK_MAX]; /* "T", "Hq"; letters of the header */
    int more[KGEN_TENSOR_RANK_MAX];         /* 1: at least as many */
    int64_t given[KGEN_TENSOR_RANK_MAX];    /* what the spec says of a size; -1: tensors do */
    char when[80];                          /* "sinks=1, lse=1"; "" for every spec */
} kgen_arg;

/* 1: kernels of that spec, which is resolved, take tensor `index`. */
KGEN_API int kgen_args_want(kgen_arg *out, const kgen_spec *spec, int index);

/* What letters of such a shape stand for in a launch. */
typedef struct kgen_arg_size {
    const char *letters;
    int64_t value;
} kgen_arg_size;

/* The shape of a tensor, arg->rank sizes: what the spec does not say is looked up among
 * these. Pure; KGEN_E_ARG names a size that is not there. */
KGEN_API kgen_status kgen_arg_shape(int64_t *shape, const kgen_arg *arg, const kgen_arg_size *sizes,
                                    size_t count, kgen_error *err);

/* A row of <family>_args.def in words, for programs that show or mirror it. */
typedef struct kgen_arg_row {
    const char *name, *doc;
    size_t offset;     /* in the struct of the family */
    kgen_use use;      /* of a tensor */
    int form;          /* 1: another form of the tensor of that name before it */
    int optional;      /* a tensor may have no data */
    const char *ctype; /* of a number: "float"; NULL: a tensor */
    char type[32];     /* "bf16"; "key q": what that key of the spec says */
    char shape[64];    /* "[T][Hq][D]"; "by layout" */
    char when[80];
} kgen_arg_row;

/* 1, and the row: tensors first, then numbers, of arguments of these tags. */
KGEN_API int kgen_args_row(kgen_arg_row *out, const kgen_args *args, int index);

#ifdef __cplusplus
}
#endif
#endif
