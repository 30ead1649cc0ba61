/* The keys of a case of kv_gather. */
#ifndef KGEN_CHECK_KV_GATHER_CASE_H
#define KGEN_CHECK_KV_GATHER_CASE_H

#include "case_span.h"
#include "kv_case.h"

typedef struct kgen__kv_gather_case {
    kgen__span lens[KGEN__CASE_SEQS_MAX];   /* rows that come out */
    kgen__span cached[KGEN__CASE_SEQS_MAX]; /* tokens */
    kgen__span starts[KGEN__CASE_SEQS_MAX];
    kgen__kv_case kv;
    int32_t cols;    /* columns of the table past the longest sequence */
    int32_t idxpad;  /* entries between two rows of the table */
    int32_t nostart; /* 1: no starts */
} kgen__kv_gather_case;

#endif
