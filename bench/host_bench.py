"""What a kernel costs the host, kgen beside Triton: launching it, compiling it, and starting with a filled cache.

The kernel is paged attention (bf16, 64/8 heads of 128, pages of 16), Triton's is AITER's unified attention with
the configuration it takes by itself. Every number of compiling and starting comes from a process of its own. See
docs/bench.md.

  --dry-run   without a GPU: ours on cpu:sm90, Triton's kernels compiled for sm_90 and not launched
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

STARTED = time.perf_counter()

import attn_bench  # torch and Triton come with it
import harness
import kgen_ctypes as kg
import places

IMPORTED = time.perf_counter()

QUEUE = 64  # launches between two waits: fewer than a stream takes without blocking
SAMPLES = 31
KERNELS = ("kernel_unified_attention_2d", "kernel_unified_attention_3d", "reduce_segments")


def the_row(options):
    """Short: the device keeps up with the host, so that no launch waits for room in the queue."""
    return attn_bench.Row(((1, 600),), q_heads=16, kv_heads=2) if options.dry_run else attn_bench.Row(((1, 1 << 10),))


def milliseconds(begin):
    return (time.perf_counter() - begin) * 1e3


# ---- in a process of its own: ours ----------------------------------------------


def wait(options):
    if not options.dry_run:
        harness.torch.cuda.synchronize()


def launch_us(call, options, count=QUEUE):
    """Median microseconds of host time of a call; the waits are not counted."""
    times = []
    for _ in range(2 if options.dry_run else SAMPLES):
        wait(options)
        begin = time.perf_counter()
        for _ in range(1 if options.dry_run else count):
            call()
        times.append((time.perf_counter() - begin) / (1 if options.dry_run else count) * 1e6)
    wait(options)
    return statistics.median(times)


def graph_us(call, options):
    """The same of replaying a graph of one launch."""
    if options.dry_run:
        return None
    graph = harness.torch.cuda.CUDAGraph()
    with harness.torch.cuda.graph(graph):
        call()
    return launch_us(graph.replay, options)


def make_case(options):
    """With it the process has a device context, as an engine has before it loads a kernel."""
    began = time.perf_counter()
    device = "cpu" if options.dry_run else "cuda"
    case = attn_bench.Case(the_row(options), device, 1, 256)
    wait(options)
    return case, milliseconds(began)


def check(case, options):
    """Returns the error; times of wrong results are worth nothing."""
    result = case.error(case.out, 0)
    if not attn_bench.is_right(result):
        raise kg.KgenError(f"wrong result: error {result[0]:.2g} of {result[1]:.2g}")
    return result[0]


def child_kgen(options):
    case, device_ms = make_case(options)
    began = time.perf_counter()
    context = kg.Context(options.device, options.cache, kg.AUTO if options.cold else kg.OFFLINE)
    open_ms, began = milliseconds(began), time.perf_counter()
    kernel = attn_bench.Kgen(context, case.row, "", "cpu" if options.dry_run else "cuda")
    prepare_ms, began = milliseconds(began), time.perf_counter()
    kernel.bind(case)
    kernel.run(case, 0)
    kernel.finish()
    first_ms = milliseconds(began)
    done = {"import_ms": (IMPORTED - STARTED) * 1e3, "device_ms": device_ms, "open_ms": open_ms,
            "prepare_ms": prepare_ms, "first_ms": first_ms, "ready_ms": open_ms + prepare_ms + first_ms,
            "error": check(case, options)}
    if options.launches:
        done |= {"launch_us": launch_us(lambda: kernel.run(case, 0), options),
                 "graph_us": graph_us(lambda: kernel.run(case, 0), options)}
    context.close()
    return done


# ---- in a process of its own: Triton's -------------------------------------------


class Compiling:
    """A Triton kernel that is compiled where it would be launched: there is no GPU."""

    def __init__(self, kernel):
        self.kernel, self.arg_names = kernel, kernel.arg_names

    def __getitem__(self, grid_size):
        return lambda **options: self.kernel.warmup(grid=grid_size, **options)


class Noted:
    """A Triton kernel whose launches are noted, to be done again without what leads to them."""

    def __init__(self, kernel, calls):
        self.kernel, self.calls = kernel, calls

    def __getitem__(self, grid_size):
        def run(**options):
            self.calls.append((self.kernel[grid_size], options))
            return self.calls[-1][0](**options)
        return run


def time_compiler(compiled):
    """Notes the milliseconds of every compilation, look-ups in the cache included."""
    import triton.compiler
    theirs = triton.compiler.compile

    def timed(*args, **named):
        began = time.perf_counter()
        kernel = theirs(*args, **named)
        compiled.append(milliseconds(began))
        return kernel
    triton.compiler.compile = timed


def emulate_driver():
    import types
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    driver.set_active(types.SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", 90, 32), get_current_device=lambda: 0,
        get_current_stream=lambda device: 0))


def load_peer(row, options):
    import attn_peers
    peers = [attn_peers.Aiter(config) for config in ("2d", "3d")]
    peer = next(p for p in peers if p.is_own_choice(row))
    for name in KERNELS if options.dry_run else ():
        kernel = getattr(peer.module, name)
        kernel.kernel = Compiling(kernel.kernel)
    return peer


def child_triton(options):
    """Its tensors are there before anything of the kernel is loaded."""
    case, device_ms = make_case(options)
    compiled = []
    if options.dry_run:
        emulate_driver()
    time_compiler(compiled)
    began = time.perf_counter()
    peer = load_peer(case.row, options)
    load_ms, began = milliseconds(began), time.perf_counter()
    peer.run(case, 0)
    wait(options)
    first_ms = milliseconds(began)
    done = {"import_ms": (IMPORTED - STARTED) * 1e3, "device_ms": device_ms, "load_ms": load_ms,
            "first_ms": first_ms, "ready_ms": load_ms + first_ms, "compile_ms": float(sum(compiled)),
            "kernels": len(compiled), "error": None if options.dry_run else check(case, options), "peer": peer.name,
            "triton": attn_bench.triton.__version__}
    if options.launches:
        done["call_us"] = launch_us(lambda: peer.run(case, 0), options)
        done["graph_us"] = graph_us(lambda: peer.run(case, 0), options)
        calls = note_launches(peer, case)
        done["launch_us"] = launch_us(lambda: [launch(**arguments) for launch, arguments in calls], options)
        done["launched"] = len(calls)
    return done


def note_launches(peer, case):
    """The kernels of one call with the arguments they had."""
    calls = []
    for name in KERNELS:
        setattr(peer.module, name, Noted(getattr(peer.module, name), calls))
    peer.run(case, 0)
    return calls


# ---- processes --------------------------------------------------------------------


def run_child(kind, options, cache, *more):
    """What it measured, and the seconds that the process took."""
    command = [sys.executable, __file__, "--child", kind, "--cache", str(cache), "--device", options.device, *more]
    command += ["--emulated"] if options.dry_run else []  # --dry-run would have Triton interpreted
    env = dict(os.environ, TRITON_CACHE_DIR=str(cache))
    env.pop("TRITON_INTERPRET", None)
    began = time.perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise kg.KgenError(f"{kind}: {(done.stderr.strip() or 'no message').splitlines()[-1][:300]}")
    return {**json.loads(done.stdout.splitlines()[-1]), "process_s": seconds}


def run_kgen(*arguments):
    """(its output, seconds)"""
    began = time.perf_counter()
    done = subprocess.run([places.command(), *arguments], env=harness.kgen_environment(), capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise kg.KgenError(f"kgen {arguments[0]}: {(done.stderr.strip() or 'no message').splitlines()[-1][:300]}")
    return done.stdout, seconds


def median_of(runs):
    """Field by field; of what is no number the first."""
    return {n: statistics.median(r[n] for r in runs) if isinstance(runs[0][n], float) else runs[0][n]
            for n in runs[0]}


def measure_triton(options, folder):
    cold = []
    for number in range(options.runs):
        cache = folder / f"triton-{number}"
        cold.append(run_child("triton", options, cache))
    warm = [run_child("triton", options, cache) for _ in range(options.runs)]
    launches = run_child("triton", options, cache, "--launches")
    return {"cold": median_of(cold), "warm": median_of(warm), "launches": launches}


def measure_kgen(options, folder):
    spec, cold, built = the_row(options).spec, [], []
    arch = "cpu:sm90" if options.dry_run else "sm_90"
    for number in range(options.runs):
        cold.append(run_child("kgen", options, folder / f"kgen-{number}", "--cold"))
        cache = folder / f"built-{number}"
        built.append(run_kgen("build", "--quiet", "--arch", arch, "--cache-dir", str(cache), spec)[1])
    warm = [run_child("kgen", options, cache) for _ in range(options.runs)]
    launches = run_child("kgen", options, cache, "--launches")
    return {"cold": median_of(cold), "warm": median_of(warm), "launches": launches,
            "build_s": statistics.median(built)}


def measure_host(options, folder):
    """The row of `kgen bench --host`."""
    text, _ = run_kgen("bench", "--host", "--json", "--device", options.device, the_row(options).spec)
    report = json.loads(text)
    return {**report["rows"][0], "device": report["device"]}


# ---- report ------------------------------------------------------------------------

# title, where the number of Triton stands, where that of kgen does, unit
ROWS = (
    ("launch: the whole call from Python", "triton.launches.call_us", "kgen.launches.launch_us", "us"),
    ("launch: Triton's launcher alone", "triton.launches.launch_us", "", "us"),
    ("launch: kgen_launch over the driver's call", "", "host.launch_ns", "ns"),
    ("launch: replay of a CUDA graph of one", "triton.launches.graph_us", "kgen.launches.graph_us", "us"),
    ("cold: the compiler's part", "triton.cold.compile_ms", "host.cold_ms", "ms"),
    ("cold: until the first launch is done", "triton.cold.ready_ms", "kgen.cold.ready_ms", "ms"),
    ("cold: the process (kgen build)", "triton.cold.process_s", "kgen.build_s", "s"),
    ("warm: the cache's part", "triton.warm.compile_ms", "kgen.warm.prepare_ms", "ms"),
    ("warm: until the first launch is done", "triton.warm.ready_ms", "kgen.warm.ready_ms", "ms"),
    ("warm: look-up in the file cache", "", "host.warm_us", "us"),
    ("warm: load of the code object", "", "host.load_us", "us"),
)
COLUMNS = (("row", "{:<44}"), ("triton", "{:>10}"), ("kgen", "{:>10}"), ("unit", "{:<4}"), ("ratio", "{:>7}"))


def find(report, path):
    value = report
    for name in path.split(".") if path else ():
        value = value.get(name) if isinstance(value, dict) else None
    return value if path else None


def rows_of(report):
    rows = []
    for title, theirs, ours, unit in ROWS:
        a, b = find(report, theirs), find(report, ours)
        rows.append({"row": title, "triton": a, "kgen": b, "unit": unit, "ratio": a / b if a and b else None})
    return rows


def line_of(values):
    texts = ["-" if v is None else v if isinstance(v, str) else f"{v:.2f}" for v in values]
    return "  ".join(form.format(text) for (_, form), text in zip(COLUMNS, texts))


def measure(options):
    """Returns how many of the parts failed."""
    report = {"spec": the_row(options).spec, "emulated": options.dry_run, "runs": options.runs}
    folder = pathlib.Path(tempfile.mkdtemp(prefix="host-bench-"))
    failed = 0
    for name, part in (("triton", measure_triton), ("kgen", measure_kgen), ("host", measure_host)):
        try:
            report[name] = part(options, folder)
        except (kg.KgenError, OSError, ValueError, LookupError) as error:
            failed += 1
            print(f"left out: {name}: {error}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    report["rows"] = rows_of(report)
    for line in [line_of([name for name, _ in COLUMNS])] + [line_of(row.values()) for row in report["rows"]]:
        print(line)
    harness.write_files(report, options)
    return failed


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--runs", type=int, default=3, help="processes of each kind; their median counts")
    p.add_argument("--dry-run", action="store_true", help="without a GPU")
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--tag", default="host_bench", help="name of the JSON and CSV files")
    p.add_argument("--child", choices=("kgen", "triton"), help=argparse.SUPPRESS)
    p.add_argument("--cache", help=argparse.SUPPRESS)
    p.add_argument("--emulated", dest="dry_run", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--cold", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--launches", action="store_true", help=argparse.SUPPRESS)
    options = p.parse_args()
    if options.dry_run:
        options.device = "cpu:sm90"
    return options


def main():
    options = parse()
    if options.child:
        print(json.dumps((child_kgen if options.child == "kgen" else child_triton)(options)))
        return 0
    return int(measure(options) > 0)


if __name__ == "__main__":
    sys.exit(main())
