/* What a kernel was launched with last. */
#ifndef KGEN_RUNTIME_ARGS_AGAIN_H
#define KGEN_RUNTIME_ARGS_AGAIN_H

#include <stdatomic.h>

#include "args_rows.h"
#include "checks.h"

enum { KGEN__PACKED_MAX = 2048 };

/* A tensor that was accepted; its memory is in bytes from its address. With what a launch asks
 * its row of the binding, which would be one line of the processor's cache more for each. */
typedef struct kgen__accepted {
    uint32_t offset, to; /* as in kgen__bound */
    uint64_t kind;       /* of its address */
    uintptr_t first, end;
    kgen_tensor tensor;
} kgen__accepted;

typedef struct kgen__memo {
    atomic_int busy;
    int is_filled;
    uint32_t grid;
    uint64_t numbers[KGEN__NUMBERS_MAX];
    kgen__accepted accepted[KGEN__BOUND_MAX]; /* as the binding has them */
    char packed[KGEN__PACKED_MAX];
} kgen__memo;

/* 1: the arguments are those that were accepted last but for addresses, and what is written
 * shares no memory with others; `packed` has what it had then, and the addresses of tensors
 * with a place. at: the memory of each tensor of the binding. */
int kgen__args_again(void *packed, size_t packed_bytes, uint32_t *grid, kgen__stretch *at,
                     kgen__memo *memo, const kgen__binding *binding, const void *args);

/* They were accepted. */
void kgen__args_remember(kgen__memo *memo, const kgen__binding *binding, const void *args,
                         const void *packed, size_t packed_bytes, uint32_t grid);

#endif
