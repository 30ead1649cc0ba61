// kv_gather:kv=bf16,o=bf16,d=128,dv=128,page=16,layout=nhd,descale=none,waves=4,turns=2,occ=4
// for gfx942, written by kgen
#define KG_KERNEL kg_kv_gather_kvbf16_bf16_d128_v128_p16_nhd_9403536a82
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
constexpr int DTYPE_I8 = 12;
constexpr int DTYPE_I4 = 13;
constexpr int KV_DTYPE = 1;
constexpr int X_DTYPE = 1;
constexpr int HEAD_DIM = 128;
constexpr int V_DIM = 128;
constexpr int PAGE_X16 = 0;
constexpr int PAGE = 16;
constexpr int LAYOUT_NHD = 1;
constexpr int LAYOUT_HND = 2;
constexpr int LAYOUT_SHUFFLE = 3;
constexpr int LAYOUT_XPACKED = 4;
constexpr int LAYOUT = 1;
constexpr int TABLE_I64 = 0;
constexpr int DESCALE_AUTO = 0;
constexpr int DESCALE_NONE = 1;
constexpr int DESCALE_HEAD = 2;
constexpr int DESCALE_TOKEN = 3;
constexpr int DESCALE_BLOCK = 6;
constexpr int SCALE = 1;
constexpr int FROM_START = 0;
constexpr int FROM_END = 1;
constexpr int FROM = 0;
constexpr int LEN_I64 = 0;
constexpr int CU_I64 = 0;
constexpr int ROW_ALIGN = 16;
constexpr int WAVES = 4;
constexpr int TURNS = 2;
constexpr int OCCUPANCY = 4;
}
