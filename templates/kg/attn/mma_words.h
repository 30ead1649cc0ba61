// Operands of AMD's matrix products.
#pragma once
#include "kg/core/frag.h"
#include "kg/attn/attn_num.h"

namespace kg {

typedef short s16x4_t __attribute__((ext_vector_type(4)));
typedef short s16x8_t __attribute__((ext_vector_type(8)));
typedef short s16x16_t __attribute__((ext_vector_type(16)));
typedef _Float16 f16x4_t __attribute__((ext_vector_type(4)));
typedef _Float16 f16x8_t __attribute__((ext_vector_type(8)));
typedef _Float16 f16x16_t __attribute__((ext_vector_type(16)));
typedef __bf16 bf16x8_t __attribute__((ext_vector_type(8)));

struct words4 {
    u32 w[4];
};
struct words2 {
    u32 w[2];
};
struct words8 {
    u32 w[8];
};

// A tile's accumulators of one lane are a vector, so that they stay in adjacent
// registers from one block to the next.
typedef float acc_t __attribute__((ext_vector_type(O_REGS)));

} // namespace kg
