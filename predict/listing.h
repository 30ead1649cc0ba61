/* Machine code as text -> instructions, basic blocks and loops. Only for
 * predict/ and its tests. */
#ifndef KGEN_PREDICT_LISTING_H
#define KGEN_PREDICT_LISTING_H

#include "predict.h"

typedef enum kgen__op {
    KGEN__OP_SCALAR,
    KGEN__OP_VALU,
    KGEN__OP_MATRIX,
    KGEN__OP_LOAD,  /* from global memory */
    KGEN__OP_STORE, /* atomics too */
    KGEN__OP_LDS,
    KGEN__OP_WAIT, /* counters, fixed delays and hints: no work */
    KGEN__OP_END,
    KGEN__OP_PADDING,
} kgen__op;

typedef struct kgen__instruction {
    uint32_t offset; /* bytes from the start of the code */
    int16_t op;      /* kgen__op */
    int16_t bytes;   /* a lane: loads and stores */
    int16_t cycles;  /* of a SIMD: VALU and matrix */
    int16_t falls;   /* 0: the next instruction does not follow */
    int32_t target;  /* of a branch, an index; else -1 */
    int32_t allowed; /* a wait: loads that may be outstanding after it; else -1 */
} kgen__instruction;

typedef struct kgen__block {
    int32_t first, end; /* instructions */
    int32_t next[2];    /* blocks, or -1 */
    int32_t order;      /* in reverse postorder; -1: not reachable */
    int32_t dominator;  /* block, that of the first is itself */
    int32_t loop;       /* the innermost, or -1 */
} kgen__block;

typedef struct kgen__loop {
    int32_t header; /* block */
    int32_t depth;  /* 1: in no other */
    int32_t blocks;
    uint8_t *has; /* [blocks of the listing] */
} kgen__loop;

typedef struct kgen__listing {
    kgen__instruction *code;
    size_t count;
    kgen__block *blocks;
    int32_t block_count;
    kgen__loop *loops;
    int32_t loop_count;
    kgen_isa isa;
} kgen__listing;

/* text: what kgen_disassemble gives. Nothing about it is trusted: a branch to
 * where no instruction begins is KGEN_E_COMPILE. *out: kgen__listing_free. */
kgen_status kgen__listing_parse(kgen__listing *out, const char *text, kgen_isa isa,
                                kgen_error *err);
void kgen__listing_free(kgen__listing *listing);

/* Blocks, dominators, natural loops: the second half of parsing (loops.c). */
kgen_status kgen__listing_find_loops(kgen__listing *listing, kgen_error *err);

/* NULL: outside of loops more is loaded than in any of them. */
const kgen__loop *kgen__listing_hottest(const kgen__listing *listing);

/* loop: NULL for all of the code. */
void kgen__listing_mix(kgen__mix *out, const kgen__listing *listing, const kgen__loop *loop,
                       int32_t wave_size);

typedef struct kgen__path {
    kgen__instruction *steps;
    int32_t count;
} kgen__path;

/* One turn, or of no loop all of the code, the way that most turns go. *out: kgen__path_free;
 * nothing in it: no way leads to an end. */
kgen_status kgen__listing_path(kgen__path *out, const kgen__listing *listing,
                               const kgen__loop *loop, kgen_error *err);
void kgen__path_free(kgen__path *path);

/* Sets turn_us and turn_flight; as they are where the target has no device. */
kgen_status kgen__predict_pace(kgen__mix *out, const kgen__path *path, const kgen_target *target,
                               kgen_error *err);

#endif
