// kv_write:x=bf16,kv=bf16,d=128,dv=128,page=16,layout=nhd,scale=none,waves=4,turns=2,few=1,occ=4
// for gfx942, written by kgen
#define KG_KERNEL kg_kv_write_bf16_kvbf16_d128_v128_p16_nhd_bfd4580f94
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
constexpr int DTYPE_I8 = 12;
constexpr int DTYPE_I4 = 13;
constexpr int KV_DTYPE = 1;
constexpr int HEAD_DIM = 128;
constexpr int V_DIM = 128;
constexpr int PAGE_X16 = 0;
constexpr int PAGE = 16;
constexpr int LAYOUT_NHD = 1;
constexpr int LAYOUT_HND = 2;
constexpr int LAYOUT_SHUFFLE = 3;
constexpr int LAYOUT_XPACKED = 4;
constexpr int LAYOUT = 1;
constexpr int SLOTS_I64 = 1;
constexpr int DESCALE_AUTO = 0;
constexpr int DESCALE_NONE = 1;
constexpr int DESCALE_HEAD = 2;
constexpr int DESCALE_TOKEN = 3;
constexpr int DESCALE_ROW = 4;
constexpr int DESCALE_BLOCK = 6;
constexpr int SCALE = 1;
constexpr int POW2 = 0;
constexpr int REMAP_I32 = 1;
constexpr int REMAP_I64 = 2;
constexpr int REMAP = 0;
constexpr int ROPE_OFF = 0;
constexpr int ROPE_NEOX = 1;
constexpr int ROPE_INTERLEAVED = 2;
constexpr int ROPE = 0;
constexpr int ROPE_DIM = 0;
constexpr int ROPE_Q = 0;
constexpr int TABLE_DTYPE = 7;
constexpr int TABLE_FULL = 0;
constexpr int POS_I64 = 1;
constexpr int ROW_ALIGN = 16;
constexpr int WAVES = 4;
constexpr int TURNS = 2;
constexpr int FEW_ROWS = 1;
constexpr int OCCUPANCY = 4;
}
