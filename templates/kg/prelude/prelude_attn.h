// attn:phase=decode,q=bf16,kv=bf16,o=bf16,d=128,dv=128,g=1,page=16,layout=nhd,descale=none,waves=4,mt=1,vs=1,occ=2
// for gfx942, written by kgen
#define KG_KERNEL kg_attn_decode_bf16_kvbf16_d128_g1_p16_nhd_b3adb9ecec
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
constexpr int PHASE = 0;
constexpr int DTYPE_F32 = 7;
constexpr int Q_DTYPE = 1;
constexpr int DTYPE_I8 = 12;
constexpr int DTYPE_I4 = 13;
constexpr int KV_DTYPE = 1;
constexpr int OUT_DTYPE = 1;
constexpr int HEAD_DIM = 128;
constexpr int V_DIM = 128;
constexpr int GROUP = 1;
constexpr int Q_TOKENS = 1;
constexpr int PAGE_X16 = 0;
constexpr int PAGE = 16;
constexpr int LAYOUT_NHD = 1;
constexpr int LAYOUT_HND = 2;
constexpr int LAYOUT_SHUFFLE = 3;
constexpr int LAYOUT_XPACKED = 4;
constexpr int LAYOUT = 1;
constexpr int TABLE_I64 = 0;
constexpr int FLAT = 0;
constexpr int CAUSAL_SEQ = 2;
constexpr int CAUSAL = 1;
constexpr int LEN_I64 = 0;
constexpr int CU_I64 = 0;
constexpr int DTYPE_U8 = 10;
constexpr int DTYPE_U16 = 11;
constexpr int DTYPE_I32 = 8;
constexpr int DTYPE_I64 = 9;
constexpr int WORD = 8;
constexpr int WINDOW_RT = -1;
constexpr int WINDOW = 0;
constexpr int RIGHT = 0;
constexpr int CHUNK = 0;
constexpr int LOOKBACK = 0;
constexpr int KEEP = 0;
constexpr int SPANS = 0;
constexpr int SOFTCAP = 0;
constexpr int ALIBI_SQRT = 2;
constexpr int ALIBI = 0;
constexpr int CAP_LAST = 0;
constexpr int SINKS = 0;
constexpr int GATE = 0;
constexpr int LSE_TH = 2;
constexpr int LSE = 0;
constexpr int DESCALE_AUTO = 0;
constexpr int DESCALE_NONE = 1;
constexpr int DESCALE_HEAD = 2;
constexpr int DESCALE_TOKEN = 3;
constexpr int DESCALE_IGNORE = 5;
constexpr int DESCALE = 1;
constexpr int INVARIANT = 0;
constexpr int CASCADE = 0;
constexpr int WAVES = 4;
constexpr int ROW_TILES = 1;
constexpr int V_SPLIT = 1;
constexpr int OCCUPANCY = 2;
constexpr int CLUSTER = 0;
constexpr int PART_KEYS = 0;
constexpr int BOUNDED = 1;
constexpr int RAGGED = 0;
constexpr int TREE = 0;
constexpr int DENSE = 0;
constexpr int STAGED = 0;
constexpr int PAIRED = 0;
constexpr int BRINGERS = 0;
constexpr int MATRICES_BYTES = 0;
constexpr int DIRECT = 0;
constexpr int SPARSE = 0;
constexpr int BY_MATRICES = 0;
constexpr int BY_LINES = 0;
constexpr int KEY_QUEUE = 0;
constexpr int Q_YIELDS = 0;
}
