// gdn:fuse=e,layout=flat,x=bf16,hk=16,hv=32,state=f32,sl=vk,cs=bf16,cw=bf16,ab=bf16,dt=bf16,nw=bf16,o=bf16,batch=many,vb=1,waves=4,lanes=16,el=32,occ=3
// for gfx942, written by kgen
#define KG_KERNEL kg_gdn_e_flat_bf16_hk16_hv32_k128_v128_statef32_vk
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
constexpr int FUSE = 5;
constexpr int IN_LAYOUT = 6;
constexpr int X_DTYPE = 1;
constexpr int K_HEADS = 16;
constexpr int V_HEADS = 32;
constexpr int K_DIM = 128;
constexpr int V_DIM = 128;
constexpr int STATE_DTYPE = 7;
constexpr int STATE_LAYOUT = 8;
constexpr int TILED = 0;
constexpr int CONV_WIDTH = 4;
constexpr int CONV_LAYOUT = 10;
constexpr int CONV_DTYPE = 1;
constexpr int CONV_W_DTYPE = 1;
constexpr int CONV_BIAS = 0;
constexpr int CONV_SILU = 1;
constexpr int GATE = 0;
constexpr int AB_DTYPE = 1;
constexpr int ALOG_DTYPE = 7;
constexpr int DT_DTYPE = 1;
constexpr int L2_NORM = 1;
constexpr int OUT_GATE = 0;
constexpr int NORM_DTYPE = 1;
constexpr int OUT_DTYPE = 1;
constexpr int TOKENS = 1;
constexpr int VARLEN = 0;
constexpr int INDEX = 0;
constexpr int INDEX_I64 = 0;
constexpr int SENTINEL = 0;
constexpr int ACCEPT = 0;
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
