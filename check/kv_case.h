/* What the cases of both kv families say of the cache. */
#ifndef KGEN_CHECK_KV_CASE_H
#define KGEN_CHECK_KV_CASE_H

#include <stdint.h>

typedef struct kgen__kv_case {
    int32_t hkv;      /* KV heads */
    int32_t page;     /* run-time page of page=x16 */
    int32_t tail;     /* rows after the last sequence's */
    int32_t extra;    /* pages of nobody */
    int32_t packed;   /* 1..3: K and V are views of one tensor */
    int32_t pad;      /* 16-byte units between two tokens of the cache */
    int32_t rowpad;   /* 16-byte units between two rows outside */
    int32_t headpad;  /* 16-byte units between two heads outside */
    int32_t off;      /* 1: rows and caches begin 16 bytes into an allocation */
    int32_t poison;   /* 0: finite numbers where no row looks */
    int32_t kds, vds; /* kgen__scale_shape */
} kgen__kv_case;

#endif
