/* The keys of a case of kv_write. */
#ifndef KGEN_CHECK_KV_WRITE_CASE_H
#define KGEN_CHECK_KV_WRITE_CASE_H

#include "case_span.h"
#include "kv_case.h"

typedef struct kgen__kv_write_case {
    kgen__span lens[KGEN__CASE_SEQS_MAX];   /* new tokens */
    kgen__span cached[KGEN__CASE_SEQS_MAX]; /* tokens before them */
    kgen__kv_case kv;
    int32_t qh;        /* query heads of a KV head, rq=1 */
    int32_t skips;     /* of 8 rows, those that are skipped */
    int32_t reserved;  /* pages whose slots are reserved */
    int32_t rows;      /* rows of k, v, q past those with slots */
    int32_t spread;    /* 1: slots in random order, not in runs */
    int32_t inplace;   /* 1: q_out is q */
    int32_t extremes;  /* 0: no infinities, NaN, huge values in k, v */
    int32_t positions; /* rows of the tables */
    int32_t onescale;  /* 1: scale=row with a head stride of 0 */
    double xstd;       /* of k, v */
} kgen__kv_write_case;

#endif
