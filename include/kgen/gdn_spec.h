/* Specs of family gdn: Gated DeltaNet and its convolution. Part of spec.h. */
#ifndef KGEN_GDN_SPEC_H
#define KGEN_GDN_SPEC_H

#include <stdint.h>

/* What a gdn kernel does. conv: unpack the in-projection, convolve, activate.
 * A: gates and recurrence. B: A, then the gated norm. C: conv only.
 * D: conv, then A. E: conv, then B. */
typedef enum kgen_gdn_fuse {
    KGEN_FUSE_A = 1,
    KGEN_FUSE_B = 2,
    KGEN_FUSE_C = 3,
    KGEN_FUSE_D = 4,
    KGEN_FUSE_E = 5,
} kgen_gdn_fuse;

/* Where a sequence's state is read and written.
 * ONE     slots[n], both
 * PAIR    read slots[n], write write_slots[n]
 * SPEC    slots[n][accepted[n] - 1], then slots[n][t] after token t
 * BLOCKS  read slots[n][read_col[n]], write slots[n][write_col[n]] */
typedef enum kgen_gdn_index {
    KGEN_INDEX_ONE = 0,
    KGEN_INDEX_PAIR = 1,
    KGEN_INDEX_SPEC = 2,
    KGEN_INDEX_BLOCKS = 3,
} kgen_gdn_index;

/* What is kept of the states. FINAL: the state after the last token. SLOTS:
 * after each token, a slot each. BUFFER: after each token, in a buffer beside
 * the pool. NONE: nothing. REPLAY: the tokens' inputs go to a ring; the state
 * is written when the ring is full. */
typedef enum kgen_gdn_save {
    KGEN_SAVE_FINAL = 0,
    KGEN_SAVE_SLOTS = 1,
    KGEN_SAVE_BUFFER = 2,
    KGEN_SAVE_NONE = 3,
    KGEN_SAVE_REPLAY = 4,
} kgen_gdn_save;

/* Slots that stand for "no sequence"; those outside the pool always do.
 * NEG: below 0. NONPOS: below 1. VALUE: pad_slot, given at launch. */
typedef enum kgen_gdn_sentinel {
    KGEN_SENTINEL_NEG = 0,
    KGEN_SENTINEL_NONPOS = 1,
    KGEN_SENTINEL_VALUE = 2,
} kgen_gdn_sentinel;

/* GDN: one decay a head. KDA: one a channel of K. KDA_BOUND: the same with
 * log decay = lower_bound * sigmoid(exp(A_log) (a + dt_bias)). */
typedef enum kgen_gdn_gate {
    KGEN_GATE_GDN = 0,
    KGEN_GATE_KDA = 1,
    KGEN_GATE_KDA_BOUND = 2,
} kgen_gdn_gate;

typedef struct kgen_gdn_spec {
#define KGEN_PARAM(field, key, CONST, domain, symbols, dflt, role, print, doc) int32_t field;
#include "gdn_params.def"
#undef KGEN_PARAM
} kgen_gdn_spec;

#endif
