/* What the families of workloads share: memory, contents, tensors that turn. */
#ifndef KGEN_WORKLOAD_WORKLOAD_FAMILY_H
#define KGEN_WORKLOAD_WORKLOAD_FAMILY_H

#include <kgen/capture.h>

#include "workload.h"

enum { KGEN__WORKLOAD_SETS_MAX = 1024 };

static inline int64_t kgen__divide_up(int64_t n, int64_t d) { return (n + d - 1) / d; }

/* A tensor of the arguments of which every set has its own, `bytes` apart. */
typedef struct kgen__turn {
    size_t offset; /* in the struct of the family */
    size_t bytes;
} kgen__turn;

enum { KGEN__TURNS_MAX = 32 };

struct kgen__workload {
    kgen_context *ctx;
    kgen_stream stream;
    kgen_spec spec; /* resolved */
    kgen_problem problem;
    kgen_args args; /* of set 0 */
    kgen_args_room room;
    const kgen_arg_size *sizes; /* of the rows, while `make` runs */
    size_t size_count;
    double bytes, read_bytes, flops;
    int sets;
    kgen__turn turn[KGEN__TURNS_MAX];
    int turns;
    kgen_upload **uploads; /* of a captured launch, one a set; NULL: none */
    void **memory;
    size_t memory_count, memory_capacity;
    double memory_bytes; /* of all tensors */
    int measuring;       /* nothing is allocated or written */
    uint64_t random;
};

typedef struct kgen__workload_family {
    /* Refuses what cannot be made; says bytes, read_bytes and flops. */
    kgen_status (*plan)(kgen__workload *work, kgen_error *err);
    kgen_status (*make)(kgen__workload *work, kgen_error *err);
    int reads; /* 1: little is written; the limit is that of reading, not of copying */

    /* Of a captured launch, the tensors that say how large it is. */
    const char *batch;                       /* its first dimension */
    const char *lengths;                     /* their mean is the context; NULL: none */
    const char *heads;                       /* its second dimension; NULL: the spec says */
    int32_t (*group)(const kgen_spec *spec); /* heads of it for a KV head; NULL: 1 */

    /* How large launches are, where nobody says. */
    const kgen_problem *problems;
    size_t problem_count;
    int32_t usual_heads; /* KV heads; 0: the spec says, or there are none */
} kgen__workload_family;

#define KGEN_FAMILY(name, NAME) extern const kgen__workload_family kgen__workload_##name;
#include <kgen/families.def>

/* NULL when `family` is out of range. */
const kgen__workload_family *kgen__workload_family_of(kgen_family_id family);

/* ---- contents: finite numbers of any type --------------------------------- */
typedef enum kgen__content {
    KGEN__NOTHING,  /* written before it is read */
    KGEN__SIGNED,   /* magnitudes 2^-7 to 1 */
    KGEN__SMALL,    /* 2^-11 to 2^-4: sums of squares of a head are below 1 */
    KGEN__POSITIVE, /* 2^-7 to 1 */
    KGEN__NEGATIVE, /* -1 to -2^-7 */
} kgen__content;

typedef enum kgen__owner { KGEN__SHARED, KGEN__EACH_SET } kgen__owner;

/* Sets of `bytes` that together are cold_bytes (0: more than any last-level
 * cache), `most` at most. */
int kgen__workload_sets_for(double bytes, double cold_bytes, int most);
uint64_t kgen__workload_random(kgen__workload *work, uint64_t below);

/* `t` is a tensor of work->args, whose row says type, layout and shape, by work->sizes;
 * dense, a set's. Nothing happens where kernels of the spec do not take it. */
kgen_status kgen__workload_row(kgen__workload *work, kgen_tensor *t, kgen__owner owner,
                               kgen__content content, kgen_error *err);
/* The same where the row does not say the shape. */
kgen_status kgen__workload_tensor(kgen__workload *work, kgen_tensor *t, kgen__owner owner,
                                  int32_t rank, const int64_t *shape, kgen__content content,
                                  kgen_error *err);

/* The same for a table of them. */
typedef struct kgen__content_row {
    kgen_tensor *t;
    kgen__owner owner;
    kgen__content content;
} kgen__content_row;
kgen_status kgen__workload_rows(kgen__workload *work, const kgen__content_row *rows, size_t count,
                                kgen_error *err);

/* Writes the integers of one set. */
typedef void kgen__integers(int64_t *values, int64_t count, int set, void *user);

/* The same three of integers. */
kgen_status kgen__workload_row_ints(kgen__workload *work, kgen_tensor *t, kgen__owner owner,
                                    kgen__integers *fill, void *user, kgen_error *err);
kgen_status kgen__workload_ints(kgen__workload *work, kgen_tensor *t, kgen__owner owner,
                                int32_t rank, const int64_t *shape, kgen__integers *fill,
                                void *user, kgen_error *err);

typedef struct kgen__fill_row {
    kgen_tensor *t;
    kgen__owner owner;
    kgen__integers *fill;
} kgen__fill_row;
kgen_status kgen__workload_rows_ints(kgen__workload *work, const kgen__fill_row *rows, size_t count,
                                     void *user, kgen_error *err);

/* 0 .. count - 1 in random order; nothing while measuring. *out: free(). */
kgen_status kgen__workload_shuffled(int32_t **out, kgen__workload *work, int64_t count,
                                    kgen_error *err);

/* low .. INT32_MAX, or KGEN_E_ARG naming the field of the problem. */
kgen_status kgen__workload_bound(const char *field, int32_t value, int32_t low, kgen_error *err);

/* ---- caches ------------------------------------------------------------------ */
typedef struct kgen__workload_cache {
    kgen_layout layout;
    kgen_dtype dtype;
    int64_t pages, page, heads, dim, v_dim; /* pages of all sets */
} kgen__workload_cache;

/* page of a spec: of x16, 16. */
int64_t kgen__workload_page(int32_t page);
kgen_status kgen__workload_caches(kgen__workload *work, kgen_tensor *k, kgen_tensor *v,
                                  const kgen__workload_cache *c, kgen__content content,
                                  kgen_error *err);
/* granularity: kgen_descale. HEAD is one for the tensor, [1]. */
kgen_status kgen__workload_scales(kgen__workload *work, kgen_tensor *k, kgen_tensor *v,
                                  const kgen__workload_cache *c, int32_t granularity,
                                  kgen__content content, kgen_error *err);

#endif
