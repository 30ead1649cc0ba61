/* The keys of a case of attn. */
#ifndef KGEN_CHECK_ATTN_CASE_H
#define KGEN_CHECK_ATTN_CASE_H

#include "case_span.h"

typedef struct kgen__attn_case {
    kgen__span lens[KGEN__CASE_SEQS_MAX];  /* cached keys, new tokens included */
    kgen__span qlens[KGEN__CASE_SEQS_MAX]; /* new tokens; 1 in decode */
    int32_t hkv;                           /* KV heads */
    int32_t page;                          /* run-time page of page=x16 */
    int32_t window, right, keep;           /* of window=rt, right=rt, keep=rt */
    int32_t tail;                          /* padding tokens after the last sequence's */
    int32_t extra;         /* pages in nobody's table, besides the one always there */
    int32_t cols;          /* columns of the table past the longest sequence */
    int32_t rowpad;        /* entries between two rows of the table */
    int32_t packed;        /* 1: K and V are views of one tensor */
    int32_t pad;           /* 16-byte units between two tokens of K, V */
    int32_t qpad;          /* 16-byte units between two tokens of q, out */
    int32_t off;           /* 1: q, K, V begin 16 bytes into their allocation; 2: out 4 */
    int32_t poison;        /* 0: finite numbers where no row looks */
    int32_t bad;           /* of 16 sequences, so many have something out of bounds */
    int32_t share, prefix; /* cascade=1: sequences of a group; most keys that they share */
    int32_t kds, vds, qds; /* kgen__scale_shape of the descales */
    double scale;          /* softmax scale; 0: 1/sqrt(d) */
    double softcap;        /* of softcap=1 */
    double oscale;         /* out_scale; 0: random */
    double sink;           /* added to every sink */
} kgen__attn_case;

#endif
