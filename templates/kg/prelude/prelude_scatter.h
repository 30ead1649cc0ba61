// scatter:op=spec_prepare,page=16
// for gfx942, written by kgen
#define KG_KERNEL kg_spec_prepare_p16_8d325d8db3
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
constexpr int OP_PAGE_TABLE_RAGGED = 1;
constexpr int OP_PAGE_TABLE_REQUESTS = 2;
constexpr int OP_SPEC_PREPARE = 3;
constexpr int OP_DRAFT_PAGE_TABLE = 4;
constexpr int OP_DRAFT_KV_INDICES = 5;
constexpr int OP_KV_INDICES = 6;
constexpr int OP_DRAFT_LENS = 7;
constexpr int OP_CACHE_LOCS = 8;
constexpr int OP_ASSIGN_LOCS = 9;
constexpr int OP_SLOT_MAPPING = 10;
constexpr int OP_EAGLE_STEP = 11;
constexpr int OP_PADDED_INPUTS = 12;
constexpr int OP_NEXT_TOKEN = 13;
constexpr int OP_BONUS_TOKENS = 14;
constexpr int OP_ACCEPT_LOCS = 15;
constexpr int OP_KEEP_LOCS = 16;
constexpr int OP_EVICT_MASK = 17;
constexpr int OP_KV_SPLITS = 18;
constexpr int OP_TREE_BUILD = 19;
constexpr int OP_TREE_FROM_MASK = 20;
constexpr int OP_TREE_MASK = 21;
constexpr int OP_TREE_VERIFY = 22;
constexpr int OP_KV_COMPACT = 23;
constexpr int OP_CHUNK_CONTEXT = 24;
constexpr int OP_WINDOW_LENS = 25;
constexpr int OP_GATHER_ROWS = 26;
constexpr int OP_COPY_PAGES = 27;
constexpr int OP_REJECT = 28;
constexpr int OP = 3;
constexpr int PAGE = 16;
constexpr int SWA = 0;
constexpr int PICK_FIRST = 0;
constexpr int TAIL_ZERO = 0;
constexpr int TAIL_KEEP = 1;
constexpr int TAIL_VALUE = 2;
constexpr int TAIL = 0;
constexpr int STARTS = 0;
constexpr int UNALIGNED = 0;
constexpr int RAGGED = 0;
constexpr int ACCEPT = 0;
constexpr int SEQ = 1;
constexpr int QO = 1;
constexpr int KV = 1;
constexpr int PAGES = 1;
constexpr int LOCS = 1;
constexpr int POS = 1;
constexpr int DELTA = 0;
constexpr int BY_REQUEST = 0;
constexpr int SLICED = 0;
constexpr int FORM_UNIFORM = 0;
constexpr int FORM_RAGGED = 1;
constexpr int FORM_DRAFT = 2;
constexpr int FORM_LAST = 3;
constexpr int FORM = 0;
constexpr int SAMPLING = 0;
constexpr int RACE = 0;
constexpr int MASK_WORDS = 0;
constexpr int MASK_QLEN = 1;
constexpr int MASK_FULL = 2;
constexpr int MASK = 0;
constexpr int DTYPE_U8 = 10;
constexpr int DTYPE_U16 = 11;
constexpr int DTYPE_I32 = 8;
constexpr int DTYPE_I64 = 9;
constexpr int WORD = 8;
constexpr int UNIT = 16;
constexpr int PACK = 1;
constexpr int LEN_I64 = 0;
constexpr int REQ_I64 = 1;
constexpr int SLOT_I64 = 0;
constexpr int MAP_I64 = 1;
constexpr int TABLE_I64 = 0;
constexpr int OUT_I64 = 0;
constexpr int LOC_I64 = 1;
constexpr int ACCEPT_I64 = 0;
constexpr int TOKEN_I64 = 1;
constexpr int TARGET_I64 = 1;
constexpr int LINK_I64 = 1;
}
