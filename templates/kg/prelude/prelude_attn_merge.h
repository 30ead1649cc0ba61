// attn_merge:x=bf16,o=bf16,d=128,waves=4,turns=2,occ=4
// for gfx942, written by kgen
#define KG_KERNEL kg_attn_merge_bf16_bf16_d128_110fef91dd
#define KG_ISA_CDNA3 1
#define KG_WORKGROUP 256
#define KG_WAVE 64
#define KG_SIMDS 4
#define KG_LDS_BYTES 65536
namespace kg {
constexpr int DTYPE_BF16 = 1;
constexpr int DTYPE_FP16 = 2;
constexpr int DTYPE_E4M3FN = 3;
constexpr int DTYPE_E4M3FNUZ = 4;
constexpr int DTYPE_E5M2 = 5;
constexpr int DTYPE_F32 = 7;
constexpr int X_DTYPE = 1;
constexpr int OUT_DTYPE = 1;
constexpr int HEAD_DIM = 128;
constexpr int PARTS_PAIR = 0;
constexpr int PARTS_STACK = 1;
constexpr int PARTS = 0;
constexpr int LSE_TH = 2;
constexpr int LSE = 1;
constexpr int WAVES = 4;
constexpr int TURNS = 2;
constexpr int OCCUPANCY = 4;
}
