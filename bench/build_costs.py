"""What many processes, and many workers, cost a build: one kernel that N processes want at once
beside one process that wants it, and a list of kernels by one worker beside as many as there are
cores. The two of a pair take turns, so a load of others is the same for both. CPU seconds are of
kgen and all that it starts.

  build_costs.py KGEN [--processes 64] [--rounds 5] [--spec SPEC@ARCH] [--list SPEC@ARCH ...]
"""
import argparse
import os
import resource
import statistics
import subprocess
import tempfile
import time

LIST = [f"attn:phase={phase},d={d},g={g}@gfx942" for phase in ("decode", "verify,t=4") for d in (64, 128) for g in (4, 8)]


def run(kgen, processes, arguments):
    """Wall and CPU seconds, and how many kernels were compiled, in a new cache."""
    with tempfile.TemporaryDirectory() as cache:
        command = [kgen, "build", *arguments, "--no-variants", "-q", "--cache-dir", os.path.join(cache, "new")]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
        said = [process.communicate()[0] for process in running]
        wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if any(process.returncode for process in running):
            raise SystemExit(f"{' '.join(command)}: {said}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, sum(int(text.split()[0]) for text in said)


def pairs(rounds, first, second):
    """Both in turn, the order changing; their walls, CPU seconds and compilations."""
    done = []
    for i in range(rounds):
        both = [second(), first()][::-1] if i % 2 else [first(), second()]
        done.append(both)
        print("  " + "   ".join(f"{wall:6.2f} s, {cpu:6.2f} s of CPU, {count} compiled" for wall, cpu, count in both), flush=True)
    return done


def ratios(done, what):
    """Of the second over the first."""
    each = [second[what] / first[what] for first, second in done]
    return f"{min(each):.2f} to {max(each):.2f}, median {statistics.median(each):.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kgen")
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spec", default="attn:phase=extend,d=128,g=8@gfx942")
    parser.add_argument("--list", nargs="*", default=LIST)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    if options.processes:
        print(f"{options.spec} wanted by 1 and by {options.processes} processes, nothing cached")
        done = pairs(options.rounds, lambda: run(options.kgen, 1, [options.spec]),
                     lambda: run(options.kgen, options.processes, [options.spec]))
        print(f"wall {ratios(done, 0)}; CPU {ratios(done, 1)}; compiled {max(second[2] for _, second in done)} at most")
    if options.list:
        print(f"{len(options.list)} kernels by 1 and by {cores} workers")
        done = pairs(options.rounds, lambda: run(options.kgen, 1, [*options.list, "-j", "1"]),
                     lambda: run(options.kgen, 1, [*options.list, "-j", str(cores)]))
        each = [first[0] / second[0] / cores for first, second in done]
        print(f"speed over {cores} times that of one worker {min(each):.2f} to {max(each):.2f}, median "
              f"{statistics.median(each):.2f}; CPU {ratios(done, 1)}")


if __name__ == "__main__":
    main()
