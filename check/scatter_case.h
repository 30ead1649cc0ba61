/* The keys of a case of scatter. */
#ifndef KGEN_CHECK_SCATTER_CASE_H
#define KGEN_CHECK_SCATTER_CASE_H

#include "case_span.h"

typedef struct kgen__scatter_case {
    kgen__span lens[KGEN__CASE_SEQS_MAX];  /* committed tokens */
    kgen__span qlens[KGEN__CASE_SEQS_MAX]; /* new tokens, of ragged ops */
    int32_t pads;                          /* rows that are padding */
    int32_t tokens;                        /* D */
    int32_t steps;                         /* S */
    int32_t topk;                          /* K */
    int32_t cols;                          /* columns of tables past those needed */
    int32_t cut;                           /* columns of tables, entries of flat outputs too few */
    int32_t rowpad;                        /* elements between two rows */
    int32_t extra;                         /* requests of nobody */
    int32_t off;                           /* 1: outputs begin an element behind 16 bytes */
    int32_t bad;                           /* of 16 inputs, so many are out of bounds */
    int32_t live;                          /* 1: live is given */
    int32_t again;                         /* of 8 rows, so many are those of the launch before */
    int32_t vocab;
} kgen__scatter_case;

#endif
