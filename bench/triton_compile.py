"""Compiles one launch of a peer's Triton kernels for an AMD GPU, without a GPU and without torch.

Attention is AITER's unified attention with the values that its own select_2d_config and
select_3d_config give; Gated DeltaNet is AITER's fused recurrence. Types, constants and hints are
those that Triton's launcher finds for dense tensors. Writes code objects and launch.json, which
triton_launch.py takes. Sources come from .peers/, see docs/bench.md.

  python3 bench/triton_compile.py gfx942 out/peer/case.json [--two-d] [--small-pools]
"""
import argparse
import importlib.util
import json
import pathlib
import re
import sys
import types

from places import ROOT

PEERS = ROOT / ".peers/aiter/ops/triton"
ATTENTION = "_triton_kernels/attention/unified_attention.py"
ATTENTION_HOST = "attention/unified_attention.py"
RECURRENCE = "_triton_kernels/gated_delta_rule/decode/fused_rearrange_sigmoid_gdr.py"
FP8 = {"e4m3fnuz": "*fp8e4b8", "e4m3fn": "*fp8e4nv"}
TYPES = dict(output_ptr="*bf16", query_ptr="*bf16", block_tables_ptr="*i32", seq_lens_ptr="*i32",
             query_start_len_ptr="*i32", segm_output_ptr="*fp32", segm_max_ptr="*fp32",
             segm_expsum_ptr="*fp32", k_descale_ptr="*fp32", v_descale_ptr="*fp32",
             num_seqs="i32", scale="fp32", softcap="fp32")
ABSENT = ("sink_ptr", "alibi_slopes_ptr", "qq_bias_ptr", "q_descale_ptr", "out_scale_ptr")
# Pools of an engine: they may be larger than 2 GB, where Triton's launcher gives no range.
POOLS = ("key_cache_ptr", "value_cache_ptr", "h0", "ht")


# ---- the peer's files --------------------------------------------------------------------------

def module(name, **content):
    made = types.ModuleType(name)
    made.__path__ = []
    vars(made).update(content)
    sys.modules[name] = made


def stand_ins(arch, units, fp8):
    """What the peer's files import, as far as a compile and its choices need it."""
    limit = 240.0 if fp8 == "e4m3fnuz" else 448.0
    dtypes = {name: name for name in ("float16", "bfloat16", "uint8", "dtype", "Tensor")}
    module("torch", finfo=lambda dtype: types.SimpleNamespace(min=-limit, max=limit), **dtypes)
    base = "aiter.ops.triton."
    for name in ("aiter", "aiter.ops", "aiter.ops.triton", *(base + part for part in (
            "utils", "_triton_kernels", "_triton_kernels.attention",
            "_triton_kernels.flash_attn_triton_amd"))):
        module(name)
    module(base + "utils._triton", arch_info=types.SimpleNamespace(get_arch=lambda: arch))
    module(base + "utils._triton.kernel_repr",
           make_kernel_repr=lambda name, keys: lambda spec: name)
    module(base + "utils.types", e4m3_dtype="e4m3")
    module(base + "utils.device_info", get_num_sms=lambda: units)
    module(base + "_triton_kernels.flash_attn_triton_amd.utils",
           get_arch=lambda: types.SimpleNamespace(name=arch, is_rdna=False))


def load(path, name):
    if not (PEERS / path).is_file():
        raise SystemExit(f"{(PEERS / path).relative_to(ROOT)}: missing, see docs/bench.md")
    where = importlib.util.spec_from_file_location(name, PEERS / path)
    made = importlib.util.module_from_spec(where)
    sys.modules[name] = made
    where.loader.exec_module(made)
    return made


# ---- compiling ---------------------------------------------------------------------------------

def source_of(function, types_of, constants, values, small_pools):
    """Alignment of 16 and 32-bit ranges are hints where the launcher would find them."""
    from triton.compiler import ASTSource
    signature, constexprs, hints = {}, {}, {}
    for i, name in enumerate(function.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            constexprs[(i,)] = constants[name]
            continue
        kind = signature[name] = types_of.get(name, "i64")
        if kind.startswith("*"):
            hints[(i,)] = [["tt.divisibility", 16]]
            if small_pools or name not in POOLS:
                hints[(i,)].append(["tt.pointer_range", 32])
        elif kind in ("i32", "i64") and values.get(name, 1) % 16 == 0:
            hints[(i,)] = [["tt.divisibility", 16]]
    source = ASTSource(fn=function, signature=signature, constexprs=constexprs, attrs=hints)
    return source, signature


def compile_kernel(function, arch, folder, grid, options, *source):
    import triton
    from triton.backends.compiler import GPUTarget
    made, signature = source_of(function, *source)
    built = triton.compile(made, target=GPUTarget("hip", arch, 64), options=options)
    name, text = built.metadata.name, built.asm["amdgcn"]
    (folder / f"{name}.hsaco").write_bytes(built.asm["hsaco"])
    notes = text[text.index(".amdgpu_metadata"):]
    if built.metadata.global_scratch_size:
        raise SystemExit(f"{name}: wants global scratch, which triton_launch.py does not give")
    return {"name": name, "file": f"{name}.hsaco", "grid": grid,
            "threads": 64 * options["num_warps"], "lds_bytes": built.metadata.shared,
            "arguments": [item for item in signature.items() if item[1] != "constexpr"],
            "offsets": [int(o) for o in re.findall(r"\.offset:\s+(\d+)", notes)],
            "argument_bytes": int(re.search(r"\.kernarg_segment_size:\s+(\d+)", notes).group(1)),
            "options": options}


def attention_constants(case, host):
    d, g, page = case["d"], case["g"], case["page"]
    is_fp8 = case["kv"] != "bf16"
    piece = 16 if is_fp8 else 8  # elements in 16 bytes
    constants = dict.fromkeys(ABSENT)
    if not is_fp8:
        constants.update(k_descale_ptr=None, v_descale_ptr=None)
    shuffled = case["layout"] == "shuffle"
    constants.update(
        num_query_heads=case["hkv"] * g, num_queries_per_kv=g, BLOCK_SIZE=page, HEAD_SIZE=d,
        HEAD_SIZE_PADDED=d, USE_ALIBI_SLOPES=False, USE_QQ_BIAS=False, USE_SOFTCAP=False,
        USE_SINKS=False, SLIDING_WINDOW=0, BLOCK_Q=16 // g, BLOCK_M=16,
        **dict.fromkeys(("stride_k_cache_3", "stride_v_cache_3"), piece if shuffled else 1),
        ALL_DECODE=case["tokens"] == 1, SHUFFLED_KV_CACHE=shuffled, K_WIDTH=piece,
        IS_Q_FP8=False, IS_KV_FP8=is_fp8, qq_bias_stride_0=0)
    limit = host.torch.finfo(None)
    return {**constants, "FP8_MIN": limit.min, "FP8_MAX": limit.max}


def compile_attention(case, folder, options):
    """Its configuration is chosen at `choose_at` keys, so that two lengths share one code."""
    stand_ins(options.arch, case["units"], case["kv"])
    kernels = load(ATTENTION, "aiter.ops.triton._triton_kernels.attention.unified_attention")
    host = load(ATTENTION_HOST, "aiter.ops.triton.attention.unified_attention")
    n, t, hkv, shuffled = case["seqs"], case["tokens"], case["hkv"], case["layout"] == "shuffle"
    blocks = n if t == 1 else n * t // (16 // case["g"]) + n
    dtypes = ("bfloat16", "bfloat16" if case["kv"] == "bf16" else "e4m3")
    constants = attention_constants(case, host)
    types_of = {**TYPES, **dict.fromkeys(("key_cache_ptr", "value_cache_ptr"),
                                         FP8.get(case["kv"], "*bf16"))}
    row = case["hkv"] * case["d"]
    values = dict(block_table_stride=case["context"] // case["page"], num_seqs=n,
                  **{f"stride_{c}_cache_{i}": s for c in "kv"
                     for i, s in enumerate((row * case["page"], row, case["d"]))},
                  query_stride_0=row * case["g"], query_stride_1=case["d"],
                  output_stride_0=row * case["g"], output_stride_1=case["d"])
    if options.two_d:
        chosen = host.select_2d_config(case["page"], case["d"], 0, t == 1, t, case["choose_at"],
                                       case["g"], blocks * hkv, *dtypes, shuffled)
        todo = [("kernel_unified_attention_2d", [hkv, blocks, 1],
                 {**chosen, "scale": case["d"] ** -0.5})]
    else:
        chosen, reduce = host.select_3d_config(case["d"], case["page"], case["choose_at"],
                                               case["units"] * 4, blocks * hkv, *dtypes, shuffled,
                                               1, 0)
        todo = [("kernel_unified_attention_3d", [blocks, hkv, chosen["NUM_SEGMENTS_PER_SEQ"]],
                 chosen), ("reduce_segments", [n * t, hkv * case["g"], 1], reduce)]
    case["segments"] = chosen.get("NUM_SEGMENTS_PER_SEQ", 1)
    case["kernels"] = [
        compile_kernel(getattr(kernels, name), options.arch, folder, grid,
                       {key: config[key] for key in ("num_warps", "num_stages", "waves_per_eu")},
                       types_of, {**constants, **config}, values, options.small_pools)
        for name, grid, config in todo]
    return case


def compile_recurrence(case, folder, options):
    function = load(RECURRENCE, "peer_recurrence")
    function = function.fused_rearrange_sigmoid_gated_delta_rule_update_kernel.fn
    hk, hv, d, n = case["hk"], case["hv"], case["d"], case["seqs"]
    constants = dict(B=1, H=hk, HV=hv, K=d, V=d, BK=d, BV=32, stride_qkv_l=(2 * hk + hv) * d,
                     stride_qkv_hd=1, stride_init_state_token=hv * d * d,
                     stride_final_state_token=hv * d * d, stride_indices_seq=1,
                     stride_indices_tok=1, USE_INITIAL_STATE=True, INPLACE_FINAL_STATE=True,
                     USE_QK_L2NORM_IN_KERNEL=True, IS_VARLEN=True, IS_CONTINUOUS_BATCHING=True,
                     IS_SPEC_DECODING=False, IS_KDA=False, num_accepted_tokens=None)
    state = "*fp32" if case["state"] == "f32" else "*bf16"
    types_of = dict(A_log="*fp32", a="*bf16", b="*bf16", dt_bias="*bf16", qkv="*bf16", o="*bf16",
                    h0=state, ht=state, cu_seqlens="*i32", ssm_state_indices="*i32", beta="fp32",
                    threshold="fp32", scale="fp32")
    kernel = compile_kernel(function, options.arch, folder, [1, d // 32, n * hv],
                            dict(num_warps=4, num_stages=3), types_of, constants, {},
                            options.small_pools)
    return {**case, "kernels": [kernel]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("arch")
    parser.add_argument("case", type=pathlib.Path, help="a JSON file; launch.json comes beside it")
    parser.add_argument("--two-d", action="store_true", help="attention in one kernel")
    parser.add_argument("--small-pools", action="store_true", help="caches and states below 2 GB")
    options = parser.parse_args()
    case, folder = json.loads(options.case.read_text(encoding="utf-8")), options.case.parent
    compilers = {"attn": compile_attention, "gdn": compile_recurrence}
    made = compilers[case["family"]](case, folder, options)
    (folder / "launch.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
