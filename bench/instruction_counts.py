"""Counts the instructions that kgen's kernels and Triton's execute on an AMD device.

Per KiB of keys and values (attention) or of states read and written (Gated DeltaNet), by class.
The counts come from an emulator that runs HIP programs and logs, for every dispatch, how often
each instruction was executed (docs/bench.md shows the form). Every counted run is a
checked run: `kgen check` and triton_launch.py compare its results with a reference.

A kernel is launched at two sizes. `whole` is the launch at the larger one; `steady` is the
difference of the counts over the difference of the bytes, which is free of fixed costs.

  python3 bench/instruction_counts.py --on './emulate {arch}' --arch gfx942,gfx950 [--only REGEX]
  python3 bench/instruction_counts.py --log FILE              # the dispatches of one log
"""
import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys

import places
from places import ROOT

ELEMENT_BYTES = {"bf16": 2, "f32": 4}  # the others have one
FP8 = {"gfx942": "e4m3fnuz"}           # the others have e4m3fn

# The first match counts.
CLASSES = (("matrix", r"v_(s?mfma|s?wmma|smfmac|swmmac)"),
           ("valu", r"v_"),
           ("lds", r"ds_"),
           ("load", r"(global|buffer|flat|scratch)_load"),
           ("store", r"(global|buffer|flat|scratch)_(store|atomic)"),
           ("wait", r"s_(wait|nop|sleep|barrier|delay|clause)|buffer_(inv|wb|gl)|s_.*_inv"),
           ("branch", r"s_(c?branch|endpgm|setpc|swappc|call)"),
           ("scalar", r"s_"),
           ("other", r""))
NAMES = tuple(name for name, _ in CLASSES if name != "other")

HEADS = dict(family="attn", seqs=1, hkv=8, g=8, d=128, tokens=1, kv="bf16", layout="nhd", page=16)
STATES = dict(family="gdn", hk=16, hv=32, d=128, state="f32", fuse="a")
CASES = {"decode bf16 p16": HEADS,
         "decode fp8 p16": {**HEADS, "kv": "fp8"},
         "decode bf16 p64": {**HEADS, "page": 64},
         "decode fp8 p64": {**HEADS, "page": 64, "kv": "fp8"},
         "decode bf16 p16 shuffle": {**HEADS, "layout": "shuffle"},
         "decode fp8 p16 shuffle": {**HEADS, "layout": "shuffle", "kv": "fp8"},
         "verify4 bf16 p16": {**HEADS, "tokens": 4},
         "verify4 fp8 p16": {**HEADS, "tokens": 4, "kv": "fp8"},
         "gdn a f32": STATES,
         "gdn a bf16": {**STATES, "state": "bf16"},
         "gdn e f32": {**STATES, "fuse": "e"},
         "gdn e bf16": {**STATES, "state": "bf16", "fuse": "e"}}
SIZES = {"attn": ("context", 4096, 8192), "gdn": ("seqs", 2, 4)}


# ---- the log -----------------------------------------------------------------------------------

def parse_log(lines):
    """[{entry, threads, counts}] of all dispatches that executed something."""
    dispatches, entry, threads, counts = [], None, None, None
    for line in lines:
        if found := re.search(r"entry_pc=(\S+).*wg=\[(\d+),", line):
            entry, threads = found.group(1), int(found.group(2))
        elif re.search(r"executed dispatch \d+ total \d+", line):
            counts = {}
        elif counts is not None and (found := re.fullmatch(r"\s+(\d+) (\w+)\s*", line)):
            counts[found.group(2)] = int(found.group(1))
        elif counts is not None and line.rstrip().endswith("end"):
            if counts:
                dispatches.append({"entry": entry, "threads": threads, "counts": counts})
            counts = None
    return dispatches


def class_of(instruction):
    return next(name for name, pattern in CLASSES if re.match(pattern, instruction))


def by_class(counts):
    classes = dict.fromkeys(NAMES, 0)
    for instruction, count in counts.items():
        name = class_of(instruction)
        if name == "other":
            raise SystemExit(f"log: instruction {instruction} has no class")
        classes[name] += count
    return classes


def kernels_of(dispatches):
    """One launch of each kernel. All that are compared take exponentials, which the runtime's own
    kernels for copies and fills do not; `kgen check` launches twice, and the last one counts."""
    kernels = {d["entry"]: d["counts"] for d in dispatches
               if any(name.startswith("v_exp_") for name in d["counts"])}
    if not kernels:
        raise SystemExit("log: no dispatch of a kernel that takes an exponential")
    total = {}
    for counts in kernels.values():
        for name, count in counts.items():
            total[name] = total.get(name, 0) + count
    return by_class(total)


# ---- running -----------------------------------------------------------------------------------

class Failed(RuntimeError):
    """A candidate did not run, or its results are wrong: it is named and left out."""


def run(options, arch, *command):
    """On the device that counts; what it prints must say that the results are right."""
    words = shlex.split(options.on.format(arch=arch)) + [str(word) for word in command]
    done = subprocess.run(words, text=True, capture_output=True, check=False)
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if "off by" in line
                or "error" in line.lower()]
        raise Failed(f"exit status {done.returncode}: {' '.join(said[-1:])}")
    return kernels_of(parse_log(done.stderr.splitlines()))


def spec_of(case):
    if case["family"] == "gdn":
        return (f"gdn:fuse={case['fuse']},layout=flat,hk={case['hk']},hv={case['hv']},"
                f"state={case['state']} | seqs={case['seqs']}")
    n, tokens = case["seqs"], case["tokens"]
    phase = f"verify,t={tokens}" if tokens > 1 else "decode"
    shape = f" qlens={','.join([str(tokens)] * n)}" if tokens > 1 else ""
    return (f"attn:phase={phase},q=bf16,kv={case['kv']},d={case['d']},g={case['g']},"
            f"page={case['page']},layout={case['layout']} | "
            f"lens={','.join([str(case['context'])] * n)} hkv={case['hkv']}" + shape)


def bytes_of(case):
    if case["family"] == "gdn":
        return 2 * case["seqs"] * case["hv"] * case["d"] ** 2 * ELEMENT_BYTES[case["state"]]
    return (2 * case["seqs"] * case["context"] * case["hkv"] * case["d"]
            * ELEMENT_BYTES.get(case["kv"], 1))


def compile_in_a_process(options, case, arch, folder, flags):
    """Its stand-ins for the peer's imports last as long as the process."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.json").write_text(json.dumps(case), encoding="utf-8")
    done = subprocess.run([options.python, str(ROOT / "bench/triton_compile.py"), arch,
                           str(folder / "case.json"), *flags], text=True, capture_output=True,
                          check=False)
    if done.returncode:
        raise Failed(" ".join(done.stderr.strip().splitlines()[-1:]))
    return folder / "launch.json"


def kgen_run(options, case, arch):
    return run(options, arch, places.command(), "check", "--device", "hip:0", spec_of(case))


def peer_run(*flags):
    def count(options, case, arch):
        kv = FP8.get(arch, "e4m3fn") if case.get("kv") == "fp8" else case.get("kv")
        kind = "-".join(flags or ("default",)).replace("--", "")
        folder = ROOT / "out/peer" / arch / kind
        file = compile_in_a_process(options, {**case, "kv": kv, "units": options.units}, arch,
                                    folder, flags)
        return run(options, arch, options.python, ROOT / "bench/triton_launch.py", file)
    return count


# Attention is launched in three ways; `small pools` is code that only serves pools below 2 GB.
CANDIDATES = {"attn": {"kgen": kgen_run, "triton 3d": peer_run(),
                       "triton 3d, small pools": peer_run("--small-pools"),
                       "triton 2d": peer_run("--two-d")},
              "gdn": {"kgen": kgen_run, "triton": peer_run(),
                      "triton, small pools": peer_run("--small-pools")}}


def measure(options, name, case, arch, who, count):
    key, small, large = SIZES[case["family"]]
    sized = [{**case, key: size, "choose_at": small} for size in (small, large)]
    counts, moved = [count(options, c, arch) for c in sized], [bytes_of(c) for c in sized]
    steady = {k: (counts[1][k] - counts[0][k]) * 1024 / (moved[1] - moved[0]) for k in NAMES}
    return {"case": name, "arch": arch, "who": who, "spec": spec_of(sized[1]), "bytes": moved,
            "counts": counts, "steady": steady, "steady_all": sum(steady.values()),
            "whole": [sum(c.values()) * 1024 / b for c, b in zip(counts, moved)]}


# ---- output ------------------------------------------------------------------------------------

def print_row(row, ours):
    ratio = f"{row['steady_all'] / ours['steady_all']:5.2f}" if ours else "     "
    print(f"{row['arch']:8}{row['case']:25}{row['who']:24}{row['whole'][1]:7.1f}"
          f"{row['steady_all']:8.1f} {ratio} " +
          "".join(f"{row['steady'][k]:7.1f}" for k in NAMES), flush=True)


def print_heading():
    print(f"{'arch':8}{'case':25}{'who':24}{'whole':>7}{'steady':>8} ratio " +
          "".join(f"{name:>7}" for name in NAMES), flush=True)


def show_log(path):
    for i, d in enumerate(parse_log(path.read_text(encoding="utf-8").splitlines())):
        classes = by_class(d["counts"])
        print(f"{i}: entry {d['entry']}, {d['threads']} threads, "
              f"{sum(classes.values())} instructions: " +
              ", ".join(f"{k} {v}" for k, v in classes.items() if v))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", metavar="COMMAND",
                        help="prefix that runs a program on the device; {arch} is put in")
    parser.add_argument("--arch", default="gfx942,gfx950")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases and candidates")
    parser.add_argument("--units", type=int, default=40,
                        help="compute units of the device, for the peer's choices (40)")
    parser.add_argument("--python", default=sys.executable, help="with numpy and triton")
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "out/instruction_counts.json")
    parser.add_argument("--log", type=pathlib.Path)
    options = parser.parse_args()
    if not options.log and not options.on:
        parser.error("--on COMMAND or --log FILE is needed")
    return options


def rows_of_case(options, name, case, arch):
    """The ratio is that to kgen's row."""
    rows, ours = [], None
    for who, count in CANDIDATES[case["family"]].items():
        if who != "kgen" and case.get("fuse") == "e":
            continue  # the peer has no kernel from the in-projection to the norm
        if not re.search(options.only, f"{name} {who}"):
            continue
        try:
            rows.append(measure(options, name, case, arch, who, count))
        except Failed as failure:
            print(f"{arch:8}{name:25}{who}: left out, {failure}", file=sys.stderr, flush=True)
            continue
        ours = rows[-1] if who == "kgen" else ours
        print_row(rows[-1], ours)
    return rows


def main():
    options = parse_options()
    if options.log:
        show_log(options.log)
        return
    print_heading()
    rows = [row for arch in options.arch.split(",") for name, case in CASES.items()
            for row in rows_of_case(options, name, case, arch)]
    if not rows:
        raise SystemExit("nothing was counted")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
