"""What bench/triton_amd.py compiles: of each problem kgen's spec line, and the peers' kernels.

With the constants and options that the peers' own launchers choose. See docs/bench.md.
"""
import itertools
import typing

AITER = "aiter/ops/triton/"


class Launch(typing.NamedTuple):
    """One kernel of a peer, as it is launched for a case."""
    who: str
    source: str
    function: str
    constants: dict
    options: dict
    integers: str = "i64"  # type of the arguments that have no row in TYPES
    keys: int = 0          # that a workgroup takes in a turn; 0: no turn of it goes through keys
    rows: int = 0          # queries x heads of a workgroup, for which it does
    types: dict = {}       # of arguments, where they depend on the case


class Case(typing.NamedTuple):
    """One problem: kgen's spec line, and what each peer launches for it."""
    name: str
    spec: str
    launches: tuple
    keys: int = 0   # that a workgroup of kgen's takes in a turn; with flops
    rows: int = 0   # that there are for it
    flops: int = 0  # of one row and one key; 0: not counted


# ---- attention: 64 query heads, 8 KV heads, D 128, pages of 16, decode ---------------------------

# The values are those that AITER's select_2d_config and select_3d_config give on CDNA.
UNIFIED = dict(num_query_heads=64, num_queries_per_kv=8, BLOCK_SIZE=16, TILE_SIZE=16, HEAD_SIZE=128,
               HEAD_SIZE_PADDED=128, BLOCK_Q=2, BLOCK_M=16, ALL_DECODE=True,
               SHUFFLED_KV_CACHE=False, K_WIDTH=8, SLIDING_WINDOW=0, stride_k_cache_3=1,
               stride_v_cache_3=1, USE_ALIBI_SLOPES=False, USE_QQ_BIAS=False, USE_SOFTCAP=False,
               USE_SINKS=False, IS_Q_FP8=False, IS_KV_FP8=False, NUM_SEGMENTS_PER_SEQ=64,
               FP8_MIN=-240.0, FP8_MAX=240.0, softcap=0.0, qq_bias_stride_0=0,
               **dict.fromkeys(("sink_ptr", "alibi_slopes_ptr", "qq_bias_ptr", "q_descale_ptr",
                                "k_descale_ptr", "v_descale_ptr", "out_scale_ptr")))


def attn_case(_arch):
    """One step launches the 2D kernel alone, or the 3D one and the sum of its parts."""
    def launch(function, num_stages, **more):
        return Launch("aiter", AITER + "_triton_kernels/attention/unified_attention.py", function,
                      {**UNIFIED, **more}, dict(num_warps=2, num_stages=num_stages, waves_per_eu=2))
    return Case("attn decode", "attn:phase=decode,q=bf16,kv=bf16,d=128,g=8,page=16,layout=nhd",
                (launch("kernel_unified_attention_2d", 3, scale=128 ** -0.5),
                 launch("kernel_unified_attention_3d", 2), launch("reduce_segments", 1)))


# ---- latent attention: 512 + 64, 32 sequences of 8192 tokens -------------------------------------

UNITS = {"gfx942": 304, "gfx950": 256}
CACHES = ("K_Buffer", "V_Buffer", "kv_buffer_ptr", "Kv_c_cache", "K_pe_cache")


def vllm_launches(heads, page):
    """What _decode_grouped_att_m_fwd and _decode_softmax_reducev_fwd choose on ROCm."""
    source = "vllm/v1/attention/ops/triton_decode_attention.py"
    shape = dict(NUM_KV_SPLITS=16, BLOCK_DV=512, Lv=512)
    knobs = dict(num_warps=4, matrix_instr_nonkdim=16, kpack=2)
    return (Launch("vllm", source, "_fwd_grouped_kernel_stage1",
                   dict(shape, kv_group_num=heads, q_head_num=heads, BLOCK_DMODEL=512, BLOCK_DPE=64,
                        BLOCK_N=16, BLOCK_H=16, PAGE_SIZE=page, logit_cap=0.0, Lk=576, IS_MLA=True),
                   dict(knobs, num_stages=1, waves_per_eu=1), "i32", keys=16, rows=16),
            Launch("vllm", source, "_fwd_kernel_stage2", dict(shape, OUTPUT_FP16=0),
                   dict(knobs, num_stages=2, waves_per_eu=4), "i32"))


def power_of_two(number):
    return 1 << (number - 1).bit_length()


def aiter_launches(arch, heads, eight, page):
    """What mla_decode_fwd and its select_3d_config choose; AITER is for CDNA."""
    if arch not in UNITS:
        return ()
    source = AITER + "_triton_kernels/attention/mla.py"
    rows = min(heads, 128 if eight else 64)
    launched = 32 * heads // rows
    parts = min(128, power_of_two(2 * -(-4 * UNITS[arch] // launched)))
    shape = dict(num_query_heads=heads, num_tokens_per_seq=1, TILE_SIZE=page, KV_LORA_RANK=512,
                 BLOCK_Q=1, NUM_SEGMENTS_PER_SEQ=parts, ALL_DECODE=True)
    return (Launch("aiter", source, "_mla_decode_fwd_kernel",
                   dict(shape, num_kv_heads=1, QK_ROPE_HEAD_DIM=64, stride_kv_buffer_3=1,
                        query_scales_stride_0=0, query_scales_stride_1=0, query_scales_ptr=None,
                        q_scale_ptr=None, BLOCK_M=rows, NUM_HEAD_BLOCKS=heads // rows,
                        SHUFFLED_KV_CACHE=False, IS_Q_FP8=False, IS_KV_FP8=eight,
                        **({} if eight else {"kv_scale_ptr": None})),
                   dict(num_warps=2, waves_per_eu=1, num_stages=2 if arch == "gfx950" else 1),
                   keys=page, rows=rows),
            Launch("aiter", source, "_mla_decode_fwd_reduce_kernel",
                   dict(shape, out_scale_ptr=None, FP8_MIN=-240.0, FP8_MAX=240.0),
                   dict(num_warps=1, waves_per_eu=2, num_stages=1)))


# Heads, 8-bit cache -> regime, rows and keys of a workgroup, parts: what mla_gluon chooses.
GLUON = {(16, False): ("bh16bn64", 16, 64, 8), (16, True): ("bh16bn128", 16, 128, 8),
         (128, False): ("bh64", 64, 64, 2)}


def gluon_launches(arch, heads, eight):
    """AITER's kernel in Gluon: gfx950 only, pages of one token."""
    if arch != "gfx950" or (heads, eight) not in GLUON:
        return ()
    regime, rows, keys, parts = GLUON[heads, eight]
    return (Launch("aiter", AITER + "gluon/mla_gluon.py", "_mla_gluon",
                   dict(BLOCK_H=rows, BLOCK_N=keys, NUM_KV_SPLITS=parts, PAGE_SIZE=1,
                        HEAD_DIM_CKV=512, HEAD_DIM_KPE=64, KV_PE_OFFSET=512, USE_2D_VIEW=True,
                        WITHIN_2GB=True, NUM_XCDS=8 if rows == 64 else 1, NHEAD=heads,
                        REGIME=regime, RETURN_LSE=False, QLEN=1, HAS_PE=True, HAS_ATTN_SINK=False,
                        kv_scale=1.0, stride_q_nope_s=0, stride_q_pe_s=0, Final_lse=None,
                        stride_final_lse_b=0, stride_final_lse_s=0, stride_final_lse_h=0,
                        stride_mid_lse_split=1), {"num_warps": 4}, "i32", keys=keys, rows=rows),)


def mla_case(arch, heads, cache, page):
    eight = cache == "fp8"
    launches = (*vllm_launches(heads, page), *aiter_launches(arch, heads, eight, page),
                *gluon_launches(arch, heads, eight))
    code = "*fp8e4b8" if arch == "gfx942" else "*fp8e4nv"
    types = dict.fromkeys(CACHES, code if eight else "*bf16")
    return Case(f"mla h{heads} {cache} p{page}",
                f"mla:phase=decode,q=bf16,kv={cache},l=512,r=64,h={heads},page={page}",
                tuple(launch._replace(types=types) for launch in launches),
                keys=16 if arch.startswith("gfx1") else 32, rows=heads, flops=2 * (576 + 512))


def cases(arch):
    return [attn_case(arch)] + [mla_case(arch, *which) for which in
                                itertools.product((16, 128), ("bf16", "fp8"), (64, 16))]
