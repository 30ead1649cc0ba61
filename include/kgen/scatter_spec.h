/* Specs of family scatter: the index and metadata kernels around speculative
 * decoding. One op is one launch; what each reads and writes: scatter_args.h. */
#ifndef KGEN_SCATTER_SPEC_H
#define KGEN_SCATTER_SPEC_H

#include <stdint.h>

typedef enum kgen_scatter_op {
#define KGEN_OP(ID, number, name) KGEN_OP_##ID = number,
#include "scatter_ops.def"
} kgen_scatter_op;

/* What is written behind the last page or entry of a row, up to its width. */
typedef enum kgen_scatter_tail {
    KGEN_TAIL_ZERO = 0,
    KGEN_TAIL_KEEP = 1,  /* nothing: consumers bound their reads by length */
    KGEN_TAIL_VALUE = 2, /* fill, given at launch */
} kgen_scatter_tail;

/* Which columns of a request's row op=cache_locs reads. */
typedef enum kgen_scatter_form {
    KGEN_FORM_UNIFORM = 0, /* starts[n] .. + tokens - 1 */
    KGEN_FORM_RAGGED = 1,  /* starts[n] .. lens[n] - 1 */
    KGEN_FORM_DRAFT = 2,   /* topk x steps draft columns behind lens[n] */
    KGEN_FORM_LAST = 3,    /* lens[n] - 1 */
} kgen_scatter_form;

/* A tree's mask: FULL  ragged rows [lens[n] + D] of bytes, prefix included
 * QLEN  [N][D][D] bytes    WORDS  a word a row, bit c is column c */
typedef enum kgen_scatter_mask {
    KGEN_MASK_WORDS = 0,
    KGEN_MASK_QLEN = 1,
    KGEN_MASK_FULL = 2,
} kgen_scatter_mask;

typedef struct kgen_scatter_spec {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) int32_t field;
#include "scatter_params.def"
#undef KGEN_PARAM
} kgen_scatter_spec;

#endif
