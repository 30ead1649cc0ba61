// scatter:op=spec_prepare,page=16
// for gfx942, written by kgen
#define KG_KERNEL kg_spec_prepare_p16
#define KG_CDNA2 0
#define KG_CDNA3 1
#define KG_CDNA4 0
#define KG_RDNA3 0
#define KG_RDNA4 0
#define KG_SM90 0
#define KG_FP8_FNUZ 1
#define KG_WORKGROUP 256
#define KG_WAVE 64
#define KG_SIMDS 4
#define KG_LDS_BYTES 65536
namespace kg {
constexpr int OP = 3;
constexpr int PAGE = 16;
constexpr int SWA = 0;
constexpr int PICK_FIRST = 0;
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
constexpr int SLICED = 0;
constexpr int FORM = 0;
constexpr int SAMPLING = 0;
constexpr int MASK = 0;
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
constexpr int TOKEN_I64 = 1;
constexpr int LINK_I64 = 1;
}
