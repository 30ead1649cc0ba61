/* The keys of a case of gdn. */
#ifndef KGEN_CHECK_GDN_CASE_H
#define KGEN_CHECK_GDN_CASE_H

#include "case_span.h"

typedef struct kgen__gdn_case {
    kgen__span lens[KGEN__CASE_SEQS_MAX];     /* tokens of this launch */
    kgen__span accepted[KGEN__CASE_SEQS_MAX]; /* of the launch before */
    kgen__span ring[KGEN__CASE_SEQS_MAX];     /* entries in the ring */
    int32_t pads;                             /* sequences whose read slot is a sentinel */
    int32_t wpads;                            /* sequences that have a write slot that is one */
    int32_t astray;                           /* 1: the last sequence ends outside the rows */
    int32_t tail;                             /* rows after the last sequence's */
    int32_t extra;                            /* slots of nobody */
    int32_t slotpad;                          /* 16-byte units between two slots, lines, rings */
    int32_t rowpad;                           /* elements between two rows of inputs */
    int32_t outpad;                           /* elements between two rows of outputs */
    int32_t headpad;                          /* elements between two heads of the output */
    int32_t idxpad;                           /* entries between two rows of slots */
    int32_t idxstep;                          /* entries from one column of slots to the next */
    int32_t cols;                             /* convolution columns past those needed */
    int32_t scols;                            /* columns of slots past those needed */
    int32_t steps;                            /* tokens of buffer lines past t */
    int32_t rows;                             /* rows of a ring past those needed */
    int32_t off;                              /* 1: rows begin an element into their allocation */
    int32_t wide;                             /* 1: b and a are views of rows of all ranks' heads */
    int32_t lines;                            /* 1: lines are given */
    int32_t windows;                          /* 1: conv_windows are given */
    int32_t copies;                           /* 1: z, b and a are copied out (fuse=c) */
    int32_t init;                             /* 1: has_initial is given */
    int32_t same;                             /* 1: a sequence's slots coincide */
    int32_t scalet;                           /* 1: out_scale is [groups][T] in memory */
    int32_t extremes;                         /* 0: no extreme gates, zero heads, huge values */
    int32_t poison;                           /* 0: finite numbers where no row looks */
    double xstd;                              /* of activations */
    double sstd;                              /* of states */
    double vmax;                              /* of the huge values */
} kgen__gdn_case;

#endif
