"""Compiles Triton's attention kernels for AMD GPUs beside kgen's, without a GPU.

Decode of AITER's unified attention, and of latent attention vLLM's and AITER's kernels. Shows the
time of a cold compile on this machine, registers, and a turn of each kernel's hot loop as
`kgen report --predict` reads it from the code object. Needs triton (pip install triton numpy), not
torch, and the peers' sources in .peers/; see docs/bench.md. Says what is missing.

  python3 bench/triton_amd.py [--arch gfx942,gfx1100] [--only mla] [--repeats 3] [--json FILE]
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

import places
from places import ROOT
from triton_amd_cases import cases

PEERS = ROOT / ".peers"
TYPES = dict(output_ptr="*bf16", query_ptr="*bf16", key_cache_ptr="*bf16", value_cache_ptr="*bf16",
             block_tables_ptr="*i32", seq_lens_ptr="*i32", query_start_len_ptr="*i32",
             segm_output_ptr="*fp32", segm_max_ptr="*fp32", segm_expsum_ptr="*fp32",
             num_seqs="i32", total_num_tokens="i32", scale="fp32", sm_scale="fp32", Q="*bf16",
             Q_nope="*bf16", Q_pe="*bf16", Req_to_tokens="*i32", B_Seqlen="*i32", B_seq_len="*i32",
             Att_Out="*fp32", Mid_O="*fp32", Mid_lse="*fp32", Attn_sink="*fp32", O="*bf16",
             o="*bf16", lse="*fp32", k_scale="*fp32", v_scale="*fp32", kv_scale_ptr="*fp32")
ODD = ("stride_mid_os",)  # 513, no multiple of 16
REGISTERS = ("vgpr_count", "agpr_count", "sgpr_count", "vgpr_spill_count", "sgpr_spill_count",
             "private_segment_fixed_size", "group_segment_fixed_size")


# ---- a peer: one process a compile, so that nothing is warm --------------------------------------

def stand_ins():
    """The modules that the peers' files import, as far as a compile needs them."""
    import triton
    import triton.language

    def module(name, **content):
        made = types.ModuleType(name)
        made.__path__ = []
        vars(made).update(content)
        sys.modules[name] = made

    class Info:
        min, max = -240.0, 240.0

    class Rocm:
        is_rocm = staticmethod(lambda: True)

    module("torch", finfo=lambda dtype: Info)
    module("packaging", version=types.SimpleNamespace(
        parse=lambda text: [int(part) for part in re.findall(r"\d+", text)]))
    for name in ("aiter", "aiter.ops", "aiter.ops.triton", "aiter.ops.triton.utils", "vllm"):
        module(name)
    module("aiter.ops.triton.utils._triton", arch_info=None)
    module("aiter.ops.triton.utils._triton.kernel_repr",
           make_kernel_repr=lambda name, keys: lambda spec: name)
    module("aiter.ops.triton.utils.device_info", get_num_xcds=None)
    module("aiter.ops.triton.utils.types", e4m3_dtype="e4m3")
    module("vllm.platforms", current_platform=Rocm)
    module("vllm.triton_utils", tl=triton.language, triton=triton)


def load_peer(source):
    stand_ins()
    where = importlib.util.spec_from_file_location("peer", PEERS / source)
    module = importlib.util.module_from_spec(where)
    where.loader.exec_module(module)
    return module


def source_of(function, launch):
    """Types, constants and alignments as a launch with dense tensors finds them."""
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction
    kind = GluonASTSource if isinstance(function, GluonJITFunction) else ASTSource
    constants = {**launch.constants, **launch.options}
    signature, values, hints = {}, {}, {}
    for i, argument in enumerate(function.arg_names):
        if argument in constants:
            signature[argument] = "constexpr"
            values[(i,)] = constants[argument]
            continue
        signature[argument] = {**TYPES, **launch.types}.get(argument, launch.integers)
        if signature[argument] != "fp32" and argument not in ODD:
            hints[(i,)] = [["tt.divisibility", 16]]
    return kind(fn=function, signature=signature, constexprs=values, attrs=hints)


def launches(arch):
    """By the names that processes call them by."""
    return {f"{case.name} {launch.function}": launch
            for case in cases(arch) for launch in case.launches}


def compile_peer(name, arch, output):
    """In a process of its own: prints one JSON object."""
    begin = time.time()
    import triton
    from triton.backends.compiler import GPUTarget
    launch = launches(arch)[name]
    source = source_of(getattr(load_peer(launch.source), launch.function), launch)
    imported = time.time()
    lanes = 32 if arch.startswith("gfx1") else 64
    built = triton.compile(source, target=GPUTarget("hip", arch, lanes), options=launch.options)
    compiled = time.time()
    pathlib.Path(output).write_bytes(built.asm["hsaco"])
    registers = {key: int(found.group(1)) for key in REGISTERS
                 if (found := re.search(rf"\.{key}:\s+(\d+)", built.asm["amdgcn"]))}
    registers["group_segment_fixed_size"] = built.metadata.shared  # given at launch
    print(json.dumps({"triton": triton.__version__, "import_s": imported - begin,
                      "compile_s": compiled - imported, "registers": registers}))


def time_peer(kgen, case, launch, arch, folder):
    """None, and on stderr why, where the peer's compiler refuses."""
    output = folder / f"{launch.function}.hsaco"
    with tempfile.TemporaryDirectory() as cache:
        begin = time.time()
        run = subprocess.run([sys.executable, __file__, "--one", f"{case.name} {launch.function}",
                              arch, str(output)], env={**os.environ, "TRITON_CACHE_DIR": cache},
                             text=True, capture_output=True, check=False)
        wall = time.time() - begin
    if run.returncode:
        why = (run.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"{arch} {case.name} {launch.function}: {why}", file=sys.stderr)
        return None
    turn = kgen_json(kgen, "report", "--predict", "--arch", arch, "--object", str(output),
                     launch.function)[0]["turn"]
    turn["flops"] = launch.keys * launch.rows * case.flops // launch.options["num_warps"]
    return {**json.loads(run.stdout.splitlines()[-1]), "process_s": wall, "turn": turn}


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


def time_kgen(kgen, case, arch):
    """A build into an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        begin = time.time()
        run_kgen(kgen, "build", case.spec, "--arch", arch, "-q", "--cache-dir", cache)
        wall = time.time() - begin
        built, predicted = (kgen_json(kgen, "report", *option, case.spec, "--arch", arch,
                                      "--cache-dir", cache)[0] for option in ((), ("--predict",)))
    r, turn = built["resources"], predicted["turn"]
    registers = {"vgpr_count": r["vgprs"] + r["agprs"], "agpr_count": r["agprs"],
                 "sgpr_count": r["sgprs"], "vgpr_spill_count": r["vgpr_spills"],
                 "sgpr_spill_count": r["sgpr_spills"],
                 "private_segment_fixed_size": r["scratch_bytes"],
                 "group_segment_fixed_size": r["lds_bytes"]}
    if case.flops:
        waves, tiles = (int(re.search(rf"\b{key}=(\d+)", predicted["spec"]).group(1))
                        for key in ("waves", "mt"))
        turn["flops"] = case.keys * min(case.rows, 16 * tiles) * case.flops // waves
    return {"compile_s": built["compile_ms"] / 1000, "process_s": wall, "registers": registers,
            "turn": turn, "toolchain": built["toolchain"]}


# ---- both ----------------------------------------------------------------------------------------

def row(case, who, kernel, arch, samples):
    """The last sample, with the median of the times."""
    times = {key: statistics.median(sample[key] for sample in samples)
             for key in ("compile_s", "process_s")}
    return {**samples[-1], **times, "case": case.name, "who": who, "kernel": kernel, "arch": arch,
            "repeats": len(samples)}


def measure(kgen, case, arch, repeats):
    """Candidates take turns, so that a busy machine is busy for all of them."""
    ours, peers = [], {launch: [] for launch in range(len(case.launches))}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            ours.append(time_kgen(kgen, case, arch))
            for i, launch in enumerate(case.launches):
                sample = time_peer(kgen, case, launch, arch, pathlib.Path(folder))
                peers[i] += [sample] if sample else []
    return [row(case, "kgen", "", arch, ours)] + [
        row(case, launch.who, launch.function, arch, peers[i])
        for i, launch in enumerate(case.launches) if peers[i]]


HEADINGS = ("arch", "case", "kernel", "vgpr", "spills", "lds", "inst", "valu", "matrix", "lds ops",
            "waits", "bytes", "in flight", "inst/KiB", "inst/Mflop", "compile s", "process s")


def cells(r):
    turn, g = r["turn"], r["registers"]
    return (r["arch"], r["case"], f"{r['who']} {r['kernel']}".strip(), g["vgpr_count"],
            g["vgpr_spill_count"] + g["sgpr_spill_count"], g["group_segment_fixed_size"],
            turn["instructions"], turn["valu"], turn["matrix"], turn["lds"], turn["wait"],
            turn["load_bytes"], turn["in_flight_bytes"],
            f"{turn['instructions'] * 1024 / max(turn['load_bytes'], 1):.1f}",
            f"{turn['instructions'] * 1e6 / turn['flops']:.0f}" if turn.get("flops") else "-",
            f"{r['compile_s']:.2f}", f"{r['process_s']:.2f}")


def print_table(rows):
    """As Markdown."""
    lines = [HEADINGS, ("---",) * len(HEADINGS)] + [tuple(map(str, cells(r))) for r in rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")


def check_triton():
    found = importlib.util.find_spec("triton")
    if not found:
        raise SystemExit("triton: not installed here; pip install triton numpy")
    if not (pathlib.Path(found.origin).parent / "backends/amd").is_dir():
        raise SystemExit("triton: this build has no AMD back end")


def choose(archs, only):
    """(arch, case) of those whose name has `only`; the peers' sources are there."""
    chosen = [(arch, case) for arch in archs for case in cases(arch) if only in case.name]
    if not chosen:
        raise SystemExit(f"--only {only}: no case; there are "
                         + ", ".join(case.name for case in cases(archs[0])))
    for source in sorted({launch.source for _, case in chosen for launch in case.launches}):
        if not (PEERS / source).is_file():
            raise SystemExit(f".peers/{source}: missing; docs/bench.md says where it comes from")
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="gfx942,gfx950")
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "out/triton_amd.json")
    parser.add_argument("--one", nargs=3, metavar=("CASE", "ARCH", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    check_triton()
    if options.one:
        compile_peer(*options.one)
        return
    kgen = places.command()
    rows = [r for arch, case in choose(options.arch.split(","), options.only)
            for r in measure(kgen, case, arch, options.repeats)]
    print_table(rows)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
