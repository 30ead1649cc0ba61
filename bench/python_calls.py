#!/usr/bin/env python3
"""What a launch costs its caller beside the driver: from C, through ctypes, by the package, by a drop-in.

usage: python_calls.py [build folder]    (default build/release; needs torch)

Nothing is launched: the checks of a launch stand for it (kgen_launch_check), as the same work on
every device. Times are the thread's own and the least of one run's rounds; their ratio to the C call is
what another machine will see too.
"""
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import places
from places import ROOT

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release").resolve()
os.environ["KGEN_DEVICE"] = "cpu:cdna3"
sys.path[:0] = [str(BUILD / "python"), str(ROOT / "bench")]

import torch  # noqa: E402

import kgen  # noqa: E402
import kgen_ctypes  # noqa: E402
from kgen.dropin import aiter, attention, vllm  # noqa: E402

LINE = "attn:phase=decode,d=128,g=4,page=16,layout=nhd"
S, HKV, D, SCALE = 8, 2, 128, 128 ** -0.5
C_LOOP = r"""
#include <kgen/kgen.h>
#include <time.h>
double cost(const kgen_kernel *kernel, const kgen_args *args, int count) {
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    for (int i = 0; i < count; i++) {
        size_t bytes;
        kgen_workspace_size(kernel, args, &bytes, NULL);
        if (kgen_launch_check(kernel, args, NULL) != KGEN_OK) return -1;
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    return (double)(b.tv_sec - a.tv_sec) / count * 1e6 + (double)(b.tv_nsec - a.tv_nsec) / count / 1e3;
}
"""


def tensors():
    cache = torch.randn(2, 64, 16, HKV, D).bfloat16()
    q = torch.randn(S, 4 * HKV, D).bfloat16()
    return {"q": q, "k": cache[0], "v": cache[1], "out": torch.empty_like(q),
            "block_table": torch.zeros(S, 8, dtype=torch.int32), "seq_lens": torch.ones(S, dtype=torch.int32)}


def own_us(call, count=1000, rounds=40):
    """Of the thread's own time the least round: what others do on the machine is not in it."""
    times = []
    for _ in range(rounds):
        begin = time.thread_time()
        for _ in range(count):
            call()
        times.append((time.thread_time() - begin) / count * 1e6)
    return min(times)


def by_ctypes(given):
    """The mirror: (from C, with arguments made before, with six tensors described anew)."""
    ctx = kgen_ctypes.Context("cpu:cdna3", os.environ.get("KGEN_CACHE_DIR", ""), kgen_ctypes.AUTO)
    ctx.lib.kgen_launch_check.argtypes = [ctypes.c_void_p] * 3
    kernel, args = ctx.prepare(LINE), kgen_ctypes.Args("attn")
    args.part.softmax_scale = SCALE

    def fill():
        for name, value in given.items():
            setattr(args.part, name, kgen_ctypes.tensor(value, "nhd" if name in "kv" else "none"))

    def check():
        ctx.call("kgen_launch_check", kernel, ctypes.byref(args))

    def whole():
        fill()
        ctx.workspace_bytes(kernel, args)
        check()

    fill()
    bytes_needed = ctx.workspace_bytes(kernel, args)
    workspace = torch.empty(bytes_needed + 256, dtype=torch.uint8)
    args.workspace, args.workspace_bytes = (workspace.data_ptr() + 255) & ~255, bytes_needed
    return in_c(kernel, args), own_us(check), own_us(whole), workspace


def in_c(kernel, args):
    library = places.library()
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "cost.c")
        source.write_text(C_LOOP)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-I", ROOT / "include", source, library, "-o",
                        f"{folder}/cost.so", f"-Wl,-rpath,{pathlib.Path(library).parent}"], check=True)
        cost = ctypes.CDLL(f"{folder}/cost.so").cost
        cost.restype, cost.argtypes = ctypes.c_double, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
        return min(cost(kernel, ctypes.addressof(args), 10000) for _ in range(40))


class Checked:
    """A dispatcher whose launches only check."""

    def __init__(self, dispatcher):
        self.launch = dispatcher.check


def by_package(given):
    kernel = kgen.contexts.kernel_of(torch.device("cpu"), LINE)
    q, k, v, out, table, lens = given.values()

    def fresh():
        kernel.check(q=q, k=(k, "nhd"), v=(v, "nhd"), out=out, block_table=table, seq_lens=lens, softmax_scale=SCALE)

    of = kgen.Tensor.of
    q1, k1, v1, out1, table1, lens1 = of(q), of(k, "nhd"), of(v, "nhd"), of(out), of(table), of(lens)

    def known():
        kernel.check(q=q1, k=k1, v=v1, out=out1, block_table=table1, seq_lens=lens1, softmax_scale=SCALE)

    return own_us(fresh), own_us(known)


def by_dropins(given):
    """paged_attention_v1 of AITER, and vLLM's unified_attention, which has more to look at."""
    q, k, v, out, table, lens = given.values()
    one, starts, launches = torch.tensor(1.0), torch.arange(S + 1, dtype=torch.int32), attention.LAUNCHES
    attention.LAUNCHES = Checked(launches)
    try:
        return (own_us(lambda: aiter.paged_attention_v1(out, None, q, k, v, SCALE, table, None, lens, 128, None,
                                                        "auto", "NHD", 0.0, one, one)),
                own_us(lambda: vllm.unified_attention(q, k, v, out, starts, 1, lens, 128, SCALE, True, (-1, -1), table,
                                                      0.0, None, one, one)))
    finally:
        attention.LAUNCHES = launches


def main():
    given = tensors()
    c, mirror, whole, _ = by_ctypes(given)
    fresh, known = by_package(given)
    paged, unified = by_dropins(given)
    rows = [("C", c), ("ctypes, arguments made before", mirror), ("ctypes, six tensors described", whole),
            ("kgen.Kernel.launch, torch tensors", fresh), ("kgen.Kernel.launch, kgen.Tensor", known),
            ("drop-in paged_attention_v1", paged), ("drop-in unified_attention", unified)]
    for name, us in rows:
        print(f"{name:40s} {us:8.2f} us   x {us / c:6.1f}   {us - c:+7.2f} us over C")


if __name__ == "__main__":
    main()
