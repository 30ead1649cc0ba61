/* What the cases of all families say of their sequences. */
#ifndef KGEN_CHECK_CASE_SPAN_H
#define KGEN_CHECK_CASE_SPAN_H

#include <stdint.h>

enum { KGEN__CASE_SEQS_MAX = 512 };

typedef struct kgen__span {
    int32_t low, high; /* drawn from the seed when they differ */
} kgen__span;

#endif
