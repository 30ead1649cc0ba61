// Matrix products on sm_90: mma.sync m16n8k16. See mma_amd.h for the contract.
#pragma once
#include "kg/core/frag.h"
#include "kg/attn/attn_num.h"

namespace kg {

constexpr int P_WORDS = S_REGS / 2;

// A tile's accumulators of one lane.
struct acc_t {
    float x[O_REGS];
    KG_DEV_MEMBER float &operator[](int i) { return x[i]; }
    KG_DEV_MEMBER float operator[](int i) const { return x[i]; }
};
typedef acc_t scores_t;
KG_DEV float score(const scores_t &s, int reg) { return s[reg]; }
KG_DEV void set_score(scores_t &s, int reg, float x) { s[reg] = x; }

KG_DEV void mma_16816(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    if constexpr (COMPUTE_F16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

KG_DEV void mma_qk(scores_t &s, const u32 (&k)[KROWS][K_WORDS], const u32 (&q)[K_WORDS]) {
    mma_16816(s.x, k[0][0], k[1][0], k[0][1], k[1][1], q[0], q[1]);
}

// v: words (row 0: tokens 01, 23), (row 1: tokens 01, 23)
KG_DEV void mma_pv(acc_t &o, const u32 (&v)[4], const u32 (&p)[P_WORDS]) {
    mma_16816(o.x, v[0], v[2], v[1], v[3], p[0], p[1]);
}

KG_DEV u32 transpose_8x8(u32 x) {
    u32 y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

// Scores have (token, two columns) in a register; the B operand wants (column,
// two tokens).
KG_DEV void pack_p(u32 (&out)[P_WORDS], const float (&p)[S_REGS]) {
    KG_UNROLL for (int i = 0; i < P_WORDS; i++) out[i] =
        transpose_8x8(pack_compute(p[2 * i], p[2 * i + 1]));
}

} // namespace kg
