/* The keys of a case of attn_merge. */
#ifndef KGEN_CHECK_ATTN_MERGE_CASE_H
#define KGEN_CHECK_ATTN_MERGE_CASE_H

#include <stdint.h>

typedef struct kgen__attn_merge_case {
    int32_t tokens, heads;
    int32_t parts;           /* of a stack */
    int32_t tail;            /* tokens of the last part alone */
    int32_t rowpad, headpad; /* units of 8 elements between tokens, between heads */
    int32_t lsepad;          /* sums between two rows of them */
    int32_t swap;            /* 1: the heads are outside, the tokens inside */
    int32_t off;             /* 1: rows begin 16 bytes into an allocation */
    int32_t inplace;         /* above 0: out is the part of that number */
    int32_t inlse;           /* above 0: lse is that of this part */
    int32_t nolse;           /* 1: no lse comes out */
    int32_t empty;           /* eighths of the sums that say of no keys */
    int32_t garbage;         /* 1: rows of no keys hold what is no number */
    double spread;           /* of the sums */
} kgen__attn_merge_case;

#endif
