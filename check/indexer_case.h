/* The keys of a case of the indexer. */
#ifndef KGEN_CHECK_INDEXER_CASE_H
#define KGEN_CHECK_INDEXER_CASE_H

#include "case_span.h"

typedef struct kgen__indexer_case {
    kgen__span lens[KGEN__CASE_SEQS_MAX];  /* keys; of write, new ones */
    kgen__span qlens[KGEN__CASE_SEQS_MAX]; /* query tokens, where they are ragged */
    int32_t page;                          /* run-time page of page=x16 */
    int32_t tail;                          /* rows behind the last sequence's */
    int32_t extra;                         /* pages of nobody */
    int32_t cols;                          /* columns past the longest row, and of tables */
    int32_t pad;                           /* 16-byte units between pages */
    int32_t rowpad;                        /* 16-byte units between rows outside */
    int32_t off;                           /* 1: tensors begin 16 bytes into an allocation */
    int32_t apart;                         /* 1: scales are a tensor of their own */
    int32_t poison;                        /* 0: finite numbers where nothing reads */
    int32_t bad;                           /* of 16 table entries, slots: those that lead nowhere */
    int32_t k;                             /* columns that are chosen */
    int32_t values;                        /* logits that differ; 0: nearly all */
    int32_t named;                         /* 1: requests say the rows of the table */
} kgen__indexer_case;

#endif
