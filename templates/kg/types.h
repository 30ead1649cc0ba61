// Fixed-width names and the codes of the generated constants.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

namespace kg {

// kgen_dtype, kgen_layout, kgen_descale, kgen_phase of <kgen/spec.h>
constexpr int DTYPE_BF16 = 1, DTYPE_FP16 = 2, DTYPE_E4M3FN = 3, DTYPE_E4M3FNUZ = 4, DTYPE_E5M2 = 5;
constexpr int LAYOUT_NHD = 1, LAYOUT_HND = 2, LAYOUT_SHUFFLE = 3, LAYOUT_XPACKED = 4;
constexpr int DESCALE_NONE = 1, DESCALE_HEAD = 2, DESCALE_TOKEN = 3;
constexpr int PHASE_DECODE = 0, PHASE_VERIFY = 1;
constexpr int PAGE_X16 = 0;
constexpr int WINDOW_RT = -1;

constexpr bool KV_8BIT = KV_DTYPE >= DTYPE_E4M3FN;
constexpr bool OUT_8BIT = OUT_DTYPE >= DTYPE_E4M3FN;
constexpr int KV_BYTES = KV_8BIT ? 1 : 2;
// The 16-bit type that enters the matrix units: fp16 where queries or keys are.
// sm_90 turns 8-bit floats into fp16 in one instruction, so it computes 8-bit KV
// in fp16 for either query type. bf16 queries are then scaled (q_to_f16).
constexpr bool COMPUTE_F16 =
    Q_DTYPE == DTYPE_FP16 || KV_DTYPE == DTYPE_FP16 || (KG_SM90 && KV_8BIT);
constexpr bool SCALED_Q = COMPUTE_F16 && Q_DTYPE == DTYPE_BF16;

constexpr float INFINITE = __builtin_bit_cast(float, 0x7f800000u);
constexpr float LOG2E = 1.4426950408889634f;
constexpr float LN2 = 0.6931471805599453f;

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr int smaller(int a, int b) { return a < b ? a : b; }
constexpr int larger(int a, int b) { return a > b ? a : b; }

}
