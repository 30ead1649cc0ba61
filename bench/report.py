"""One file that says what kgen does on the GPU of this machine: times of every budget, beside the Triton kernels that
are installed and beside the prediction.

It runs `kgen bench` over bench/rows.txt, `kgen report --predict` for the same launches, and bench/attn_bench.py and
gdn_bench.py where torch, Triton and a peer's files are there. See docs/bench.md.

  --quick     the rows of the budgets only, and no peers
  --device    hip:0, cuda:0, cpu:cdna3 ... (the first GPU there is)
"""
import argparse
import fnmatch
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import threading
import time

import places
from places import ROOT

PREDICTS = ("gfx",)  # architectures that have a model

# rows, least share of the bandwidth
SHARES = [("attn-32x8k", 0.92), ("attn-64x8k", 0.92), ("attn-128x2k", 0.92), ("attn-32x4k", 0.92),
          ("attn-d256-64x8k", 0.92), ("attn-fp8-64x8k", 0.85), ("gdn-a-f32-64", 0.92), ("gdn-a-f32-128", 0.92),
          ("gdn-a-f32-256", 0.92), ("gdn-a-f32-512", 0.92), ("gdn-a-bf16-64", 0.92), ("gdn-a-bf16-128", 0.92),
          ("gdn-a-bf16-256", 0.92), ("gdn-a-bf16-512", 0.92)]
# row, row it stands beside, greatest time over that one's
RATIOS = [("attn-verify4-1x8k", "attn-1x8k", 1.15), ("attn-verify4-8x8k", "attn-8x8k", 1.15),
          ("attn-verify4-32x8k", "attn-32x8k", 1.15), ("attn-prefix-32x8k", "attn-prefix-32x8k-apart", 1 / 3),
          ("gdn-e-f32-64", "gdn-a-f32-64", 1.15), ("gdn-e-f32-256", "gdn-a-f32-256", 1.15)]
CLOCKS = [("rocm-smi", ["--showclocks", "--showpower", "--json"]),
          ("nvidia-smi", ["--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu", "--format=csv,noheader,nounits"])]


def call(command, **kwargs):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)


def kgen_json(*words):
    """What a command prints; its failed rows are in there."""
    done = call([places.command(), *words, "--json"])
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        sys.exit(f"report: kgen {words[0]}: {(done.stderr or 'no answer').strip().splitlines()[-1]}")


def read_rows():
    """name -> [spec, problem], as they stand in bench/rows.txt."""
    lines = [line.split("#")[0] for line in (ROOT / "bench/rows.txt").read_text().splitlines()]
    return {p[0]: p[1:] for p in ([c.strip() for c in line.split("|")] for line in lines) if len(p) == 3}


def of_budgets():
    return dict.fromkeys([name for name, _ in SHARES] + [n for pair in RATIOS for n in pair[:2]])


# ---- what the machine is ------------------------------------------------------------


class Clocks(threading.Thread):
    """What the vendor's tool says once a second while kernels are timed."""

    def __init__(self):
        super().__init__(daemon=True)
        self.tool = next(((t, a) for t, a in CLOCKS if shutil.which(t)), None)
        self.said, self.ended = [], threading.Event()

    def run(self):
        while self.tool and not self.ended.wait(1):
            self.said.append(call([self.tool[0], *self.tool[1]]).stdout.strip())

    def end(self):
        self.ended.set()
        return {"tool": self.tool and self.tool[0], "samples": self.said}


def versions():
    doctor = kgen_json("doctor")
    doctor.pop("cache", None)
    found = {n: importlib.util.find_spec(n) is not None for n in ("torch", "triton", "flashinfer")}
    return {"kgen": call([places.command(), "--version"]).stdout.strip(), "doctor": doctor, "python": platform.python_version(),
            "kernel": platform.release(), "packages": found}


# ---- what is timed ------------------------------------------------------------------


def measure(options, names):
    rows, lines = read_rows(), []
    for name in names:
        lines.append(" | ".join([name, *rows[name]]))
    path = options.out.with_suffix(".rows")
    path.write_text("\n".join(lines) + "\n")
    words = ["bench", path, "--budget", f"{options.budget}s", "--samples", options.samples, "--quiet"]
    for flag, value in (("--device", options.device), ("--problem", options.problem), ("--cache-dir", options.cache_dir)):
        words += [flag, value] if value else []
    done = kgen_json(*words)
    path.unlink()
    return done


def predict(options, bench):
    """Microseconds of each row by the model, where there is one for the device."""
    arch = bench["arch"]
    if not arch.startswith(PREDICTS):
        return
    for row in bench["rows"]:
        problem = ",".join(f"{k}={v}" for k, v in row["problem"].items() if v)
        cache = ["--cache-dir", options.cache_dir] if options.cache_dir else []
        said = call([places.command(), "report", "--predict", "--json", row["spec"], "--arch", arch, "--problem", problem,
                     *cache])
        if said.returncode == 0 and said.stdout.strip().startswith("["):
            best = json.loads(said.stdout)[0]
            row["predicted_us"], row["bound"] = best["us"], best["bound"]
            row["predicted_over_measured"] = best["us"] / row["us"]


def judge(rows):
    """Each budget: what was asked, what is, whether it holds. Rows that were not timed have none."""
    by = {row["row"]: row for row in rows}
    out = [{"budget": f"{name}: {least} of the bandwidth", "is": by[name]["of_limit"],
            "holds": by[name]["of_limit"] >= least} for name, least in SHARES if name in by]
    for name, beside, most in RATIOS:
        if name in by and beside in by:
            ratio = by[name]["us"] / by[beside]["us"]
            out.append({"budget": f"{name}: {most:.2f} of {beside}", "is": ratio, "holds": ratio <= most})
    return out


def peers(options):
    """The benchmarks beside other kernels, each in a process of its own."""
    if options.quick or not all(importlib.util.find_spec(n) for n in ("torch", "triton")):
        return {"left_out": "--quick" if options.quick else "torch or triton is not installed"}
    if not (ROOT / ".peers").is_dir():
        return {"left_out": "no .peers, which docs/bench.md describes"}
    said = {}
    for script in ("attn_bench.py", "gdn_bench.py"):
        run = [sys.executable, ROOT / "bench" / script, "--quick", "--no-check", "--tag", f"report_{script[:-3]}"]
        env = dict(os.environ, OUT=str(options.out.parent))
        call(run + ["--build"], env=env)
        done = call(run, env=env)
        file = options.out.parent / f"report_{script[:-3]}.json"
        said[script] = json.loads(file.read_text()) if file.exists() else {"failed": done.stderr.strip()[-400:]}
    return said


def show(report):
    print(f"{report['device']}; read {report['limits']['read_tb_s']:.3g} TB/s, copy {report['limits']['copy_tb_s']:.3g} TB/s")
    for row in report["rows"]:
        model = f"  predicted {row['predicted_us']:9.1f}" if "predicted_us" in row else ""
        print(f"{row['row']:28} {row['us']:10.1f} us  {100 * row['of_limit']:5.1f} % of {row['limit']}{model}")
    errors = [row["predicted_over_measured"] for row in report["rows"] if "predicted_over_measured" in row]
    if errors:
        print(f"prediction over time: {statistics.geometric_mean(errors):.2f} ({min(errors):.2f} to {max(errors):.2f})")
    for b in report["budgets"]:
        print(f"{'holds' if b['holds'] else 'SHORT'}  {b['is']:.2f}  {b['budget']}")


def options_of():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--device", default="")
    p.add_argument("--rows", default="*", help="of them, those whose name fits")
    p.add_argument("--problem", default="", help="before that of the rows: batch=1,context=64,heads=1")
    p.add_argument("--samples", type=int, default=15)
    p.add_argument("--budget", type=int, default=0, help="seconds for all samples (360, with --quick 60)")
    p.add_argument("--cache-dir", default="")
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path(os.environ.get("OUT", ROOT / "out")) / "report.json")
    options = p.parse_args()
    options.budget = options.budget or (60 if options.quick else 360)
    return options


def main():
    options, began = options_of(), time.time()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    names = [n for n in (of_budgets() if options.quick else read_rows()) if fnmatch.fnmatch(n, options.rows)]
    if not names:
        sys.exit(f"report: no row fits '{options.rows}'")
    clocks = Clocks()
    clocks.start()
    report = measure(options, names)
    report["clocks"] = clocks.end()
    predict(options, report)
    report.update(versions=versions(), budgets=judge(report["rows"]), peers=peers(options),
                  seconds=round(time.time() - began, 1), date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    show(report)
    print(f"wrote {options.out} in {report['seconds']} s")


if __name__ == "__main__":
    main()
