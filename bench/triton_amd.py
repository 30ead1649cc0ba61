"""Compiles AITER's Triton unified attention for AMD GPUs beside kgen's kernel, without a GPU.

Shows the time of a cold compile on this machine, registers, and a turn of each kernel's hot loop
as `kgen report --predict` reads it from the code object. Needs triton (pip install triton numpy),
not torch, and the peer's source in .peers/; see docs/bench.md. Says what is missing.

  python3 bench/triton_amd.py [--arch gfx942,gfx1100] [--repeats 3] [--json out/triton_amd.json]
"""
import argparse
import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import types

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / ".peers/aiter/ops/triton/_triton_kernels/attention/unified_attention.py"
SPEC = "attn:phase=decode,q=bf16,kv=bf16,d=128,g=8,page=16,layout=nhd"

# One launch of the peer: 64 query heads, 8 KV heads, D 128, pages of 16, decode. The values are
# those that its select_2d_config and select_3d_config give for these shapes on CDNA.
SHAPE = dict(num_query_heads=64, num_queries_per_kv=8, BLOCK_SIZE=16, TILE_SIZE=16, HEAD_SIZE=128,
             HEAD_SIZE_PADDED=128, BLOCK_Q=2, BLOCK_M=16, ALL_DECODE=True, SHUFFLED_KV_CACHE=False,
             K_WIDTH=8, SLIDING_WINDOW=0, stride_k_cache_3=1, stride_v_cache_3=1,
             USE_ALIBI_SLOPES=False, USE_QQ_BIAS=False, USE_SOFTCAP=False, USE_SINKS=False,
             IS_Q_FP8=False, IS_KV_FP8=False, NUM_SEGMENTS_PER_SEQ=64, FP8_MIN=-240.0,
             FP8_MAX=240.0, softcap=0.0, qq_bias_stride_0=0)
ABSENT = ("sink_ptr", "alibi_slopes_ptr", "qq_bias_ptr", "q_descale_ptr", "k_descale_ptr",
          "v_descale_ptr", "out_scale_ptr")
TYPES = dict(output_ptr="*bf16", query_ptr="*bf16", key_cache_ptr="*bf16", value_cache_ptr="*bf16",
             block_tables_ptr="*i32", seq_lens_ptr="*i32", query_start_len_ptr="*i32",
             segm_output_ptr="*fp32", segm_max_ptr="*fp32", segm_expsum_ptr="*fp32",
             num_seqs="i32", scale="fp32")
# What one attention step launches: the 2D kernel alone, or the 3D one and the sum of its parts.
KERNELS = {"kernel_unified_attention_2d": dict(num_warps=2, num_stages=3, waves_per_eu=2),
           "kernel_unified_attention_3d": dict(num_warps=2, num_stages=2, waves_per_eu=2),
           "reduce_segments": dict(num_warps=2, num_stages=1, waves_per_eu=2)}
REGISTERS = ("vgpr_count", "agpr_count", "sgpr_count", "vgpr_spill_count", "sgpr_spill_count",
             "private_segment_fixed_size", "group_segment_fixed_size")


# ---- the peer: one process a compile, so that nothing is warm -----------------------------------

def stand_ins():
    """The modules that the peer's file imports, as far as a compile needs them."""
    def module(name, **content):
        made = types.ModuleType(name)
        made.__path__ = []
        vars(made).update(content)
        sys.modules[name] = made

    class Info:
        min, max = -240.0, 240.0

    module("torch", finfo=lambda dtype: Info)
    for name in ("aiter", "aiter.ops", "aiter.ops.triton", "aiter.ops.triton.utils",
                 "aiter.ops.triton.utils._triton"):
        module(name)
    module("aiter.ops.triton.utils._triton.kernel_repr",
           make_kernel_repr=lambda name, keys: lambda spec: name)
    module("aiter.ops.triton.utils.types", e4m3_dtype="e4m3")


def load_peer():
    stand_ins()
    where = importlib.util.spec_from_file_location("unified_attention", SOURCE)
    module = importlib.util.module_from_spec(where)
    where.loader.exec_module(module)
    return module


def source_of(function, name):
    """Types, constants and alignments as a launch with dense tensors finds them."""
    from triton.compiler import ASTSource
    constants = {**SHAPE, **dict.fromkeys(ABSENT), **KERNELS[name]}
    if name.endswith("2d"):
        constants["scale"] = 128 ** -0.5
    signature, values, hints = {}, {}, {}
    for i, argument in enumerate(function.arg_names):
        if argument in constants:
            signature[argument] = "constexpr"
            values[(i,)] = constants[argument]
            continue
        signature[argument] = TYPES.get(argument, "i64")
        if signature[argument] != "fp32":
            hints[(i,)] = [["tt.divisibility", 16]]
    return ASTSource(fn=function, signature=signature, constexprs=values, attrs=hints)


def compile_peer(name, arch, output):
    """In a process of its own: prints one JSON object."""
    begin = time.time()
    import triton
    from triton.backends.compiler import GPUTarget
    peer = load_peer()
    source = source_of(getattr(peer, name), name)
    imported = time.time()
    lanes = 32 if arch.startswith("gfx1") else 64
    built = triton.compile(source, target=GPUTarget("hip", arch, lanes), options=KERNELS[name])
    compiled = time.time()
    pathlib.Path(output).write_bytes(built.asm["hsaco"])
    registers = {key: int(found.group(1)) for key in REGISTERS
                 if (found := re.search(rf"\.{key}:\s+(\d+)", built.asm["amdgcn"]))}
    registers["group_segment_fixed_size"] = built.metadata.shared  # given at launch
    print(json.dumps({"triton": triton.__version__, "import_s": imported - begin,
                      "compile_s": compiled - imported, "registers": registers}))


def time_peer(name, arch, folder):
    output = folder / f"{name}.hsaco"
    with tempfile.TemporaryDirectory() as cache:
        begin = time.time()
        run = subprocess.run([sys.executable, __file__, "--one", name, arch, str(output)],
                             env={**os.environ, "TRITON_CACHE_DIR": cache}, text=True,
                             capture_output=True, check=False)
        wall = time.time() - begin
    if run.returncode:
        raise SystemExit(f"{name} for {arch}: {run.stderr.strip().splitlines()[-1]}")
    return {**json.loads(run.stdout.splitlines()[-1]), "process_s": wall}, output


# ---- kgen ----------------------------------------------------------------------------------------

def run_kgen(kgen, *arguments):
    """comgr's own cache is off: a cold compile is asked for."""
    out = subprocess.run([kgen, *arguments], env={**os.environ, "AMD_COMGR_CACHE": "0"}, text=True,
                         capture_output=True, check=False)
    if out.returncode:
        raise SystemExit(out.stderr.strip())
    return out.stdout


def kgen_json(kgen, *arguments):
    return json.loads(run_kgen(kgen, *arguments, "--json"))


def time_kgen(kgen, arch):
    """A build into an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        begin = time.time()
        run_kgen(kgen, "build", SPEC, "--arch", arch, "-q", "--cache-dir", cache)
        wall = time.time() - begin
        built = kgen_json(kgen, "report", SPEC, "--arch", arch, "--cache-dir", cache)[0]
        turn = kgen_json(kgen, "report", "--predict", SPEC, "--arch", arch, "--cache-dir", cache)[0]
    r = built["resources"]
    registers = {"vgpr_count": r["vgprs"] + r["agprs"], "agpr_count": r["agprs"],
                 "sgpr_count": r["sgprs"], "vgpr_spill_count": r["vgpr_spills"],
                 "sgpr_spill_count": r["sgpr_spills"],
                 "private_segment_fixed_size": r["scratch_bytes"],
                 "group_segment_fixed_size": r["lds_bytes"]}
    return {"compile_s": built["compile_ms"] / 1000, "process_s": wall, "registers": registers,
            "turn": turn["turn"], "toolchain": built["toolchain"]}


# ---- both ----------------------------------------------------------------------------------------

def median_of(samples, key):
    return statistics.median(sample[key] for sample in samples)


def row(who, kernel, arch, samples):
    """The last sample, with the median of the times."""
    times = {key: median_of(samples, key) for key in ("compile_s", "process_s")}
    return {**samples[-1], **times, "who": who, "kernel": kernel, "arch": arch,
            "repeats": len(samples)}


def measure(kgen, arch, repeats):
    """Candidates take turns, so that a busy machine is busy for all of them."""
    ours, peers, turns = [], {name: [] for name in KERNELS}, {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            ours.append(time_kgen(kgen, arch))
            for name, samples in peers.items():
                sample, output = time_peer(name, arch, pathlib.Path(folder))
                samples.append(sample)
                turns[name] = kgen_json(kgen, "report", "--predict", "--arch", arch, "--object",
                                        str(output), name)[0]["turn"]
    return [row("kgen", "attn decode", arch, ours)] + [
        {**row("triton", name, arch, samples), "turn": turns[name]}
        for name, samples in peers.items()]


HEADINGS = ("arch", "who", "kernel", "compile s", "process s", "vgpr", "spills", "lds", "inst",
            "valu", "matrix", "lds ops", "bytes", "in flight", "inst/KiB")


def cells(r):
    turn, g = r["turn"], r["registers"]
    return (r["arch"], r["who"], r["kernel"], f"{r['compile_s']:.2f}", f"{r['process_s']:.2f}",
            g["vgpr_count"], g["vgpr_spill_count"] + g["sgpr_spill_count"],
            g["group_segment_fixed_size"], turn["instructions"], turn["valu"], turn["matrix"],
            turn["lds"], turn["load_bytes"], turn["in_flight_bytes"],
            f"{turn['instructions'] * 1024 / max(turn['load_bytes'], 1):.1f}")


def print_table(rows):
    lines = [HEADINGS] + [tuple(map(str, cells(r))) for r in rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def find_kgen():
    for place in (os.environ.get("KGEN"), ROOT / "out/bin/kgen", ROOT / "build/release/bin/kgen"):
        if place and pathlib.Path(place).is_file():
            return str(place)
    raise SystemExit("kgen: not built; looked for $KGEN, out/bin/kgen, build/release/bin/kgen")


def check_triton():
    found = importlib.util.find_spec("triton")
    if not found:
        raise SystemExit("triton: not installed here; pip install triton numpy")
    if not (pathlib.Path(found.origin).parent / "backends/amd").is_dir():
        raise SystemExit("triton: this build has no AMD back end")
    if not SOURCE.is_file():
        raise SystemExit(f"{SOURCE.relative_to(ROOT)}: missing; it is a file of "
                         "https://github.com/ROCm/aiter, see docs/bench.md")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="gfx942,gfx950")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "out/triton_amd.json")
    parser.add_argument("--one", nargs=3, metavar=("KERNEL", "ARCH", "FILE"),
                        help=argparse.SUPPRESS)
    options = parser.parse_args()
    check_triton()
    if options.one:
        compile_peer(*options.one)
        return
    kgen = find_kgen()
    rows = [r for arch in options.arch.split(",") for r in measure(kgen, arch, options.repeats)]
    print_table(rows)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
