"""What many processes, and many workers, cost a build: one kernel that N processes want at once
beside one process that wants it (alone, and as N - 1 that do nothing are started), and a list of
kernels by one worker beside as many as there are cores. They take turns, so a load of others is the
same for all. CPU seconds are of kgen and all that it starts.

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


def run(kgen, processes, arguments, idle=0):
    """Wall and CPU seconds, and how many kernels were compiled, in a new cache; `idle` processes
    that end at once are started with the others."""
    with tempfile.TemporaryDirectory() as cache:
        command = [kgen, "build", *arguments, "--no-variants", "-q", "--cache-dir", os.path.join(cache, "new")]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
        others = [subprocess.Popen(["true"]) for _ in range(idle)]
        said = [process.communicate()[0] for process in running]
        for process in others:
            process.wait()
        wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if any(process.returncode for process in running):
            raise SystemExit(f"{' '.join(command)}: {said}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, sum(int(text.split()[0]) for text in said)


def in_turn(rounds, *measurements):
    """All of them, the order changing; their walls, CPU seconds and compilations."""
    done = []
    for i in range(rounds):
        order = list(enumerate(measurements))
        taken = {k: measure() for k, measure in (reversed(order) if i % 2 else order)}
        done.append([taken[k] for k in range(len(measurements))])
        print("  " + "   ".join(f"{wall:6.2f} s, {cpu:6.2f} s of CPU, {count} compiled" for wall, cpu, count in done[-1]), flush=True)
    return done


def ratios(done, what, first=0, second=1):
    """Of the second over the first."""
    each = [taken[second][what] / taken[first][what] for taken in done]
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
        others = options.processes - 1
        print(f"{options.spec} wanted by 1 process, by 1 beside {others} that do nothing, and by {options.processes}; nothing cached")
        done = in_turn(options.rounds, lambda: run(options.kgen, 1, [options.spec]),
                       lambda: run(options.kgen, 1, [options.spec], others),
                       lambda: run(options.kgen, options.processes, [options.spec]))
        print(f"{options.processes} over 1: wall {ratios(done, 0, 0, 2)}; CPU {ratios(done, 1, 0, 2)}\n"
              f"beside {others} that do nothing over 1: wall {ratios(done, 0)}\n"
              f"{options.processes} over that: wall {ratios(done, 0, 1, 2)}; compiled {max(taken[2][2] for taken in done)} at most")
    if options.list:
        print(f"{len(options.list)} kernels by 1 and by {cores} workers")
        done = in_turn(options.rounds, lambda: run(options.kgen, 1, [*options.list, "-j", "1"]),
                       lambda: run(options.kgen, 1, [*options.list, "-j", str(cores)]))
        each = [first[0] / second[0] / cores for first, second in done]
        print(f"speed over {cores} times that of one worker {min(each):.2f} to {max(each):.2f}, median "
              f"{statistics.median(each):.2f}; CPU {ratios(done, 1)}")


if __name__ == "__main__":
    main()
