// indexer:op=decode,kv=e4m3fnuz,waves=4,tiles=2,qt=1,occ=3
// for gfx942, written by kgen
#define KG_KERNEL kg_index_decode_e4m3fnuz_d128_h64_t1_p64_ddca212721
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
constexpr int OP_WRITE = 0;
constexpr int OP_GATHER = 1;
constexpr int OP_DECODE = 2;
constexpr int OP_PREFILL = 3;
constexpr int OP_TOPK = 4;
constexpr int OP = 2;
constexpr int DTYPE_F32 = 7;
constexpr int X_DTYPE = 1;
constexpr int KV_DTYPE = 4;
constexpr int HEAD_DIM = 128;
constexpr int HEADS = 64;
constexpr int Q_TOKENS = 1;
constexpr int PAGE_X16 = 0;
constexpr int PAGE = 64;
constexpr int POW2 = 0;
constexpr int CLEAN = 1;
constexpr int RANGES = 0;
constexpr int TO_INDEX = 0;
constexpr int TO_COLUMN = 1;
constexpr int TO_SLOT = 2;
constexpr int TO = 0;
constexpr int SLOTS_I64 = 1;
constexpr int TABLE_I64 = 0;
constexpr int LEN_I64 = 0;
constexpr int CU_I64 = 0;
constexpr int WAVES = 4;
constexpr int TILES = 2;
constexpr int TOGETHER = 1;
constexpr int OCCUPANCY = 3;
constexpr int Q_DTYPE = 2;
constexpr int OUT_DTYPE = 2;
constexpr int DTYPE_I8 = 12;
constexpr int DTYPE_I4 = 13;
constexpr int LAYOUT = 1;
constexpr int LAYOUT_SHUFFLE = 3;
constexpr int LAYOUT_XPACKED = 4;
constexpr int WINDOW = 0;
constexpr int CHUNK = 0;
constexpr int BY_MATRICES = 0;
constexpr int BY_LINES = 0;
constexpr int KEY_QUEUE = 0;
constexpr int PAIRED = 0;
constexpr int BRINGERS = 0;
constexpr int STAGED = 0;
constexpr int DIRECT = 0;
constexpr int DESCALE = 1;
constexpr int SCALE = 3;
constexpr int DESCALE_NONE = 1;
constexpr int DESCALE_TOKEN = 3;
constexpr int DESCALE_BLOCK = 6;
constexpr int V_DIM = 128;
constexpr int ROW_ALIGN = 16;
}
