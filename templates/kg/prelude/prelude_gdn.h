// gdn:fuse=e,layout=flat,x=bf16,hk=16,hv=32,state=f32,sl=vk,cs=bf16,cw=bf16,ab=bf16,dt=bf16,nw=bf16,o=bf16,batch=many,vb=1,waves=4,lanes=16,el=32,occ=3
// for gfx942, written by kgen
#define KG_KERNEL kg_gdn_e_flat_bf16_hk16_hv32_k128_v128_statef32_vk_04cc5cdb82
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
constexpr int FUSE_A = 1;
constexpr int FUSE_B = 2;
constexpr int FUSE_C = 3;
constexpr int FUSE_D = 4;
constexpr int FUSE_E = 5;
constexpr int FUSE = 5;
constexpr int ROWS_INTERLEAVED = 5;
constexpr int ROWS_FLAT = 6;
constexpr int ROWS_PRESPLIT = 7;
constexpr int IN_LAYOUT = 6;
constexpr int DTYPE_F32 = 7;
constexpr int X_DTYPE = 1;
constexpr int QKV_SPLIT = 0;
constexpr int K_HEADS = 16;
constexpr int V_HEADS = 32;
constexpr int K_DIM = 128;
constexpr int V_DIM = 128;
constexpr int STATE_DTYPE = 7;
constexpr int STATE_VK = 8;
constexpr int STATE_KV = 9;
constexpr int STATE_LAYOUT = 8;
constexpr int TILED = 0;
constexpr int CONV_CHANNELS = 0;
constexpr int CONV_WIDTH = 4;
constexpr int CONV_SD = 10;
constexpr int CONV_DS = 11;
constexpr int CONV_LAYOUT = 10;
constexpr int CIRCULAR = 0;
constexpr int CONV_DTYPE = 1;
constexpr int CONV_W_DTYPE = 1;
constexpr int CONV_BIAS = 0;
constexpr int CONV_SILU = 1;
constexpr int GATE_GDN = 0;
constexpr int GATE_KDA = 1;
constexpr int GATE_KDA_BOUND = 2;
constexpr int GATE = 0;
constexpr int RAW_GATES = 0;
constexpr int AB_DTYPE = 1;
constexpr int ALOG_DTYPE = 7;
constexpr int DT_DTYPE = 1;
constexpr int L2_NORM = 1;
constexpr int OUT_GATE = 0;
constexpr int NORM_DTYPE = 1;
constexpr int OUT_DTYPE = 1;
constexpr int TOKENS = 1;
constexpr int VARLEN = 0;
constexpr int CU_I64 = 0;
constexpr int INDEX_ONE = 0;
constexpr int INDEX_PAIR = 1;
constexpr int INDEX_SPEC = 2;
constexpr int INDEX_BLOCKS = 3;
constexpr int INDEX = 0;
constexpr int INDEX_I64 = 0;
constexpr int SENTINEL_NEG = 0;
constexpr int SENTINEL_NONPOS = 1;
constexpr int SENTINEL_VALUE = 2;
constexpr int SENTINEL = 0;
constexpr int ACCEPT = 0;
constexpr int ACCEPT_I64 = 0;
constexpr int SAVE_FINAL = 0;
constexpr int SAVE_SLOTS = 1;
constexpr int SAVE_BUFFER = 2;
constexpr int SAVE_NONE = 3;
constexpr int SAVE_REPLAY = 4;
constexpr int SAVE = 0;
constexpr int TREE = 0;
constexpr int RING = 0;
constexpr int CONV_ROUND = 1;
constexpr int BETA_ROUND = 0;
constexpr int O_ROUND = 1;
constexpr int STATE_ROUND = 0;
constexpr int BATCH = 2;
constexpr int V_BLOCKS = 1;
constexpr int WAVES = 4;
constexpr int LANES = 16;
constexpr int ELEMENTS = 32;
constexpr int OCCUPANCY = 3;
}
