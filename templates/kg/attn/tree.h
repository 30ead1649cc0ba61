// Tokens of a tree: a word a token says which tokens of its sequence it sees, itself
// and its ancestors; the context it sees as any other token does. A token stands
// where its depth puts it, so that windows and slopes measure paths and not slots.
#pragma once
#include "kg/attn/seqs.h"

namespace kg {

// Registers hold 32 bits where those are all.
template <bool LONG> struct mask_of {
    typedef u32 type;
};
template <> struct mask_of<true> {
    typedef u64 type;
};
typedef mask_of<WORD == DTYPE_I64>::type mask_t;
constexpr int MASK_BITS = 8 * (int)sizeof(mask_t);

KG_DEV const u8 *words_of(args_t a, int seq) {
    constexpr int BYTES = WORD == DTYPE_U8 ? 1 : WORD == DTYPE_U16 ? 2 : (int)sizeof(mask_t);
    return (const u8 *)a.words + seq * a.words_row * BYTES;
}

KG_DEV mask_t mask_at(const u8 *words, int i) {
    if constexpr (WORD == DTYPE_U8) return load(words + i);
    if constexpr (WORD == DTYPE_U16) return load((const u16 *)words + i);
    return load((const mask_t *)words + i);
}

// Ancestors: the root has none.
KG_DEV int depth_of(mask_t mask) { return mask ? (int)bit_count(mask) - 1 : 0; }

} // namespace kg
