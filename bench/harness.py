"""What the benchmarks of all families share: building, timing by graph replay, tables and files.

A benchmark is one file a family, with its rows, its data and its candidates. A candidate has a `name`, and
`run(case, index)` launches it on set `index` of a case, in torch's current stream. Other projects' kernels are the
candidates of `<family>_peers.py`. See docs/bench.md.
"""
import argparse
import csv
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

if "--dry-run" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are defined

import kgen_ctypes as kg
import places

try:
    import torch
except ImportError:  # --build does without
    torch = None

OUT = places.ROOT / "out"
CACHE = OUT / "cache"
MIN_TIMED_US = 1000


# ---- the command line ---------------------------------------------------------


def parser(doc, tag, quick):
    """The options that every benchmark has. quick: (repeats with --quick, without)."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", action="store_true", help="compile the rows' kernels into out/cache")
    p.add_argument("--check", action="store_true", help="small cases only, no timing")
    p.add_argument("--no-check", action="store_true", help="no small cases")
    p.add_argument("--dry-run", action="store_true", help="small cases without a GPU")
    p.add_argument("--list", action="store_true", help="print the rows")
    p.add_argument("--quick", action="store_true", help=f"{quick[0]} repeats instead of {quick[1]}")
    p.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    p.add_argument("--tag", default=tag, help="name of the JSON and CSV files")
    return p


def settle(options, quick):
    options.raw, options.started = sys.argv[1:], time.time()
    options.repeats = quick[0] if options.quick else quick[1]
    return options


def with_tuning(spec, variant):
    return f"{spec},{variant}" if variant else spec


def variants_of(options):
    return [""] + [v.strip() for v in options.variants.split(";") if v.strip()]


# ---- building ------------------------------------------------------------------


def kgen_environment():
    """Of a process that finds the library beside this one's."""
    library = os.path.dirname(places.library())
    return dict(os.environ, LD_LIBRARY_PATH=f"{library}:{os.environ.get('LD_LIBRARY_PATH', '')}")


def build_specs(specs):
    """All at once; what fails is tried again alone, spills allowed, and named."""
    command = [places.command(), "build", "--arch", "sm_90", "--cache-dir", str(CACHE)]
    env = kgen_environment()
    together = subprocess.run(command + ["--quiet"] + specs, env=env, capture_output=True, text=True)
    if together.returncode == 0:
        print(together.stdout, end="")
        return 0
    failed = 0
    for spec in specs:
        tries = [subprocess.run(command + how + [spec], env=env, capture_output=True, text=True)
                 for how in (["--quiet"], ["--quiet", "--allow-spills"])]
        failed += tries[1].returncode != 0
        if tries[0].returncode:
            kept = "FAILED" if tries[1].returncode else "built with spills"
            print(f"{kept}: {(tries[0].stderr or spec).strip()}")
    return int(failed > 0)


def precompile(script, options, flag):
    """The peers' kernels, compiled by many processes before anything is timed; each gets `flag` part/parts."""
    started, parts = time.time(), options.warm_processes
    command = [sys.executable, script] + options.raw + [flag]
    running = [subprocess.Popen(command + [f"{i}/{parts}"], stdout=subprocess.DEVNULL) for i in range(parts)]
    failed = sum(process.wait() != 0 for process in running)
    print(f"peer kernels compiled by {parts} processes in {time.time() - started:.0f} s"
          + (f"; {failed} of them failed" if failed else ""), flush=True)


# ---- the device -----------------------------------------------------------------


def open_device(name="cuda:0"):
    """A context, and torch's word for its device. On a GPU nothing is compiled: --build comes first."""
    device = "cpu" if name.startswith("cpu") else "cuda"
    if device == "cuda":
        torch.cuda.init()
        torch.empty(1, device="cuda")  # the primary context, which kgen then shares
    return kg.Context(name, CACHE, kg.OFFLINE if device == "cuda" else kg.AUTO), device


def current_stream(device):
    return torch.cuda.current_stream().cuda_stream if device == "cuda" else 0


class Pools:
    """One allocation a name and type, of which each case takes a view: filling gigabytes takes time."""
    kept = {}

    @classmethod
    def take(cls, name, shape, dtype, device, make):
        """make(count, dtype, device): the numbers."""
        count, key = math.prod(shape), (name, dtype, device)
        if key not in cls.kept or cls.kept[key].numel() < count:
            cls.kept.pop(key, None)
            cls.kept[key] = make(count, dtype, device)
        return cls.kept[key][:count].view(shape)


# ---- time -----------------------------------------------------------------------


class Loop:
    """Stands for a graph on the cpu device: one launch after another."""

    def __init__(self, candidate, case):
        self.candidate, self.sets, self.case = candidate, range(case.sets), case

    def replay(self):
        for index in self.sets:
            self.candidate.run(self.case, index)
        self.candidate.finish()


def capture(candidate, case, device="cuda"):
    """All sets in one graph. The candidate has run before: what it does once stays outside."""
    if device == "cpu":
        return Loop(candidate, case)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(case.sets):
            candidate.run(case, index)
    return graph


def host_us(call):
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e6


def replay_us(graph, count):
    if isinstance(graph, Loop):
        return host_us(lambda: [graph.replay() for _ in range(count)]) / count
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")
    torch.cuda._sleep(200_000)  # the replays are queued before the first of them starts
    begin.record()
    for _ in range(count):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / count


def interleave(graphs, sets, repeats):
    """name -> microseconds of a launch, one number a repeat; A B C, A B C, ..."""
    counts = {n: max(1, round(MIN_TIMED_US / replay_us(g, 1))) for n, g in graphs.items()}
    times = {n: [] for n in graphs}
    for _ in range(repeats):
        for name, graph in graphs.items():
            times[name].append(replay_us(graph, counts[name]) / sets)
    return times


def median_us(call, repeats, device="cuda"):
    call()
    if device == "cpu":
        return statistics.median(host_us(call) for _ in range(repeats))
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


# ---- tables and files -------------------------------------------------------------


def width(form):
    return int(re.search(r"\d+", form).group())


def table_line(columns, values):
    """columns: (key, title, format). The row's name stands left, all else right; None is a dash."""
    cells = []
    for (key, _, form), value in zip(columns, values):
        text = "-" if value is None else value if isinstance(value, str) else form.format(value)
        cells.append(f"{text:{'<' if key == 'row' else '>'}{width(form)}}")
    return "  ".join(cells)


def heading(columns):
    return table_line(columns, [title for _, title, _ in columns])


def line_of(columns, result):
    return table_line(columns, [result[key] for key, _, _ in columns])


def write_files(report, options):
    """$OUT/<tag>.json with all of it, and .csv with the rows."""
    folder = pathlib.Path(os.environ.get("OUT", OUT))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{options.tag}.json").write_text(json.dumps(report, indent=1))
    keys = list(dict.fromkeys(k for r in report["rows"] for k, v in r.items() if not isinstance(v, dict)))
    with open(folder / f"{options.tag}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, keys, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(report["rows"])


def mean_line(title, values):
    """Geometric mean, least and most; None without values."""
    values = [value for value in values if value]
    if not values:
        return None
    return f"{title}: {statistics.geometric_mean(values):.2f} (least {min(values):.2f}, most {max(values):.2f})"


def time_rows(rows, options, report, time_row, show, stop=lambda longest: False):
    """Times row by row into report["rows"], and writes the files after each: what was measured so far is worth having.

    show(result): its lines. stop(seconds of the longest row): true ends the run. Returns the rows that were not begun.
    """
    longest = 0
    for number, row in enumerate(rows):
        if stop(longest):
            return rows[number:]
        began = time.time()
        try:
            result = time_row(row)
        except Exception as error:  # a driver that fails, memory that is short: the next row may do
            print(f"{row.name}: {type(error).__name__}: {error}", flush=True)
            continue
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        longest = max(longest, time.time() - began)
        report["rows"].append(result)
        print("\n".join(show(result)), flush=True)
        write_files(report, options)
    return []
