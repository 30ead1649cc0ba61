"""The package kgen without torch and numpy: arrays of Python's own, on the cpu device.

usage: package.py    with PYTHONPATH at the package and KGEN_CACHE_DIR
"""
import array
import ctypes
import math
import os
import random
import struct
import subprocess
import sys
import threading
import types
import unittest

import kgen

SEED = int(os.environ.get("KGEN_TEST_SEED") or random.randrange(1 << 31))
random.seed(SEED)
S, HKV, D, PAGE = 2, 1, 64, 16
LINE = f"attn:phase=decode,q=fp16,kv=fp16,d={D},g=1,page={PAGE},layout=nhd"
ctx = kgen.open("cpu:cdna3")


def halves(count):
    """fp16 numbers, which array.array does not know: bytes, and what they are."""
    values = [struct.unpack("e", struct.pack("e", random.uniform(-1, 1)))[0] for _ in range(count)]
    return bytearray(struct.pack(f"{count}e", *values)), values


class Step:
    """A decode step over two sequences, one query head."""

    def __init__(self, pages=(3, 1, 2, 0), lengths=(20, 5)):
        (self.q, q), (self.k, k), (self.v, v) = halves(S * D), halves(4 * PAGE * D), halves(4 * PAGE * D)
        self.out, self.lengths = bytearray(S * D * 2), array.array("i", lengths)
        self.table, self.columns = array.array("i", pages), len(pages) // S
        self.given = {"q": kgen.view(self.q, "fp16", (S, HKV, D)),
                      "k": kgen.view(self.k, "fp16", (4, PAGE, HKV, D), "nhd"),
                      "v": kgen.view(self.v, "fp16", (4, PAGE, HKV, D), "nhd"),
                      "out": kgen.view(self.out, "fp16", (S, HKV, D)), "seq_lens": self.lengths,
                      "block_table": memoryview(self.table).cast("B").cast("i", (S, self.columns)), "softmax_scale": D ** -0.5}
        self.want = [self.row(s, q, k, v) for s in range(S)]

    def row(self, s, q, k, v):
        places = [self.table[self.columns * s + t // PAGE] * PAGE + t % PAGE for t in range(self.lengths[s])]
        logits = [sum(q[s * D + i] * k[p * D + i] for i in range(D)) * D ** -0.5 for p in places]
        weights = [math.exp(x - max(logits)) for x in logits]
        return [sum(w * v[p * D + i] for w, p in zip(weights, places)) / sum(weights) for i in range(D)]

    def got(self):
        values = struct.unpack(f"{S * D}e", self.out)
        return [values[s * D:(s + 1) * D] for s in range(S)]


class Launch(unittest.TestCase):
    def refuse(self, error, words, call, *arguments, **named):
        with self.assertRaisesRegex(error, words) as caught:
            call(*arguments, **named)
        return caught.exception

    def test_decode(self):
        step, kernel = Step(), ctx.prepare(LINE)
        kernel.launch(**step.given)
        for want, got in zip(step.want, step.got()):
            self.assertLess(max(abs(a - b) for a, b in zip(want, got)), 4e-3)
        self.assertEqual(ctx.find(LINE).spec, kernel.spec)
        self.assertIsNone(ctx.find("attn:phase=decode,d=32"))
        self.assertRegex(kernel.symbol, "^kg_attn_decode_fp16")

    def test_a_prefix_in_common(self):
        step, kernel = Step((3, 1, 2, 3, 1, 0), (40, 37)), ctx.prepare(LINE + ",cascade=1")
        kernel.launch(prefix_seqs=array.array("i", [0, S]), prefix_lens=array.array("i", [2 * PAGE]), **step.given)
        for want, got in zip(step.want, step.got()):
            self.assertLess(max(abs(a - b) for a, b in zip(want, got)), 4e-3)
        self.refuse(kgen.KgenError, "prefix_lens: no data", kernel.launch, **step.given)

    def test_errors_are_those_of_c(self):
        step, kernel = Step(), ctx.prepare(LINE)
        given = step.given
        error = self.refuse(kgen.KgenError, "q: shape.0.=2 tokens", kernel.launch,
                            **given | {"seq_lens": array.array("i", [1])})
        self.assertEqual(error.status, "KGEN_E_ARG")
        self.refuse(kgen.KgenError, "k: layout is hnd, kernel built for nhd", kernel.check,
                    **given | {"k": (given["k"], "hnd")})
        self.refuse(kgen.KgenError, "alibi_slopes: given, kernel built without it", kernel.check,
                    **given | {"alibi_slopes": array.array("f", [1])})
        self.refuse(TypeError, "softmax: no argument of a launch of attn", kernel.check, softmax=1)
        self.refuse(TypeError, "by name", kernel.check, given["q"])
        self.refuse(ValueError, "layout 'nhdd': unknown", kernel.check, q=(given["q"], "nhdd"))
        self.refuse(TypeError, "fp16 cannot be seen as f32", kernel.check, q=(given["q"], None, "f32"))
        self.refuse(TypeError, "int is no tensor", kernel.check, q=3)
        self.refuse(ValueError, "takes 4098 bytes, bytearray has 4096", kgen.view, bytearray(4096), "fp16", (2049,))
        numbers = array.array("H", range(64))
        gaps = types.SimpleNamespace(__array_interface__={"data": (numbers.buffer_info()[0], False), "typestr": "<u2",
                                                          "shape": (32,), "strides": (4,)})  # numpy's x[::2]
        self.refuse(ValueError, "do not lie in order", kgen.view, gaps, "bf16", (4, 8))
        self.refuse(TypeError, "may not be written", kernel.check, q=bytes(8))
        self.refuse(OverflowError, "max_q_len: 4294967296", kernel.check, **given | {"max_q_len": 1 << 32})
        elsewhere = kgen.Tensor(64, "fp16", (S, HKV, D), place=(2, 1))
        for call in (lambda: kernel.launch(**given, stream=5), lambda: ctx.synchronize(5), lambda: ctx.reserve(64, 5),
                     lambda: ctx.prepare(LINE, stream=5)):
            self.refuse(kgen.KgenError, "^stream=0x5: cpu:cdna3 .*has no streams", call)
        self.refuse(kgen.KgenError, "q: it lies on cuda:1, the kernel was prepared on cpu:cdna3", kernel.check,
                    **given | {"q": elsewhere})

    def test_memory_that_may_not_be_written(self):
        """As numpy says of its arrays: read, and never written."""
        step, kernel = Step(), ctx.prepare(LINE)

        def frozen(memory, dtype, shape, layout=None):
            at = kgen.view(memory, "u8", (len(memory),)).address
            owner = types.SimpleNamespace(__array_interface__={"data": (at, True), "typestr": "|u1", "shape": (len(memory),)})
            return kgen.view(owner, dtype, shape, layout)

        kernel.launch(**step.given | {"k": frozen(step.k, "fp16", (4, PAGE, HKV, D), "nhd")})
        self.assertLess(max(abs(a - b) for a, b in zip(step.want[0], step.got()[0])), 4e-3)
        before = bytes(step.out)
        out = frozen(step.out, "fp16", (S, HKV, D))
        self.assertTrue(out.readonly and kgen.Tensor.of(out).readonly)
        for given in (out, (out, None), kgen.Tensor.of(out)):
            self.refuse(kgen.KgenError, "^out: memory that may not be written$", kernel.launch, **step.given | {"out": given})
        self.refuse(kgen.KgenError, "^out: memory", kgen.Dispatcher("attn", (), lambda *_: kernel).launch, 1, **step.given | {"out": out})
        self.refuse(kgen.KgenError, "^workspace: memory that may not", kernel.check, **step.given, workspace=frozen(step.k, "u8", (64,)))
        gaps = kgen.Tensor(out.address, "u8", (8, 8), (16, 1))
        self.refuse(ValueError, "^workspace: its elements do not lie in order", kernel.check, **step.given, workspace=gaps)
        self.assertEqual(bytes(step.out), before)

    def test_names_of_another_call(self):
        """To read a tensor may run Python, and another thread's call with its own order of names."""
        step, kernel = Step(), ctx.prepare(LINE)

        class Slow:
            @property
            def __array_interface__(self):
                kernel.check(**dict(reversed(step.given.items())))
                return {"data": (step.given["q"].address, False), "typestr": "<f2", "shape": (S, HKV, D)}

        kernel.launch(**step.given | {"q": Slow()})
        for want, got in zip(step.want, step.got()):
            self.assertLess(max(abs(a - b) for a, b in zip(want, got)), 4e-3)

    def test_threads(self):
        """On the cpu device launches of several threads run at once, each in a workspace of its own."""
        step, kernel, off = Step([3, 1, 2, 0] * 32, (1000, 900)), ctx.prepare(LINE, batch=1), []
        self.assertGreater(kernel.workspace_bytes(**step.given), 0)

        def run():
            out = bytearray(len(step.out))
            for _ in range(10):
                kernel.launch(**step.given | {"out": kgen.view(out, "fp16", (S, HKV, D))})
                got = struct.unpack(f"{S * D}e", out)
                off.extend(x for x, want in zip(got, step.want[0] + step.want[1]) if not abs(x - want) < 4e-3)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(off, [])

    def test_prepare(self):
        good, again = ctx.prepare_all([LINE, (LINE, 8, 1024, 1)])
        self.assertEqual(good.spec, again.spec)
        error = self.refuse(kgen.KgenError, "d=65: out of bounds", ctx.prepare_all, [LINE, "attn:d=65"])
        self.assertEqual(error.status, "KGEN_E_SPEC")
        told = []
        with kgen.open("cpu:cdna3", mode="strict", cache_dir=os.environ["KGEN_CACHE_DIR"] + "-empty") as strict:
            results = strict.prepare_all([LINE], progress=lambda *row: told.append(row))
            self.assertEqual(results[0].status, "KGEN_E_NOT_CACHED")
            self.assertEqual(told[0][1:], (1, 1, 0))

            def stop(*row):
                raise KeyError("enough")
            self.refuse(KeyError, "enough", strict.prepare_all, [LINE], progress=stop)
        self.refuse(RuntimeError, "this context is closed", strict.prepare, LINE)

    def test_close_meanwhile(self):
        """Refused while a call is under way that lets other threads in, and done after it."""
        other = kgen.open("cpu:cdna3")
        self.refuse(RuntimeError, "^close: a prepare, launch or synchronize is under way", other.prepare_all, [LINE],
                    progress=lambda *row: other.close())
        self.assertRegex(other.prepare(LINE).symbol, "^kg_attn")
        other.close()
        self.refuse(RuntimeError, "this context is closed", other.prepare, LINE)

    def test_dispatcher(self):
        """One choice for each combination of key, types and sizes that count; none for lengths."""
        step, chosen = Step(), []

        def choose(key, given):
            chosen.append((key, sorted(name for name, value in given.items() if value is not None)))
            return ctx.prepare(LINE)

        launches = kgen.Dispatcher("attn", ("q", "k"), choose)
        launches.launch("a", **step.given, alibi_slopes=None)
        self.assertLess(max(abs(a - b) for a, b in zip(step.want[0], step.got()[0])), 4e-3)
        launches.launch("a", **step.given)
        fewer = {name: kgen.view(bytearray(D * 2), "fp16", (1, HKV, D)) for name in ("q", "out")}
        one = step.given | fewer | {"seq_lens": array.array("i", [3])}
        launches.launch("a", **one)
        launches.launch("b", **step.given)
        self.assertEqual([key for key, _ in chosen], ["a", "b"])
        self.assertEqual(chosen[0][1], sorted(step.given))
        self.refuse(kgen.KgenError, "q: shape.2.=32", launches.launch, "a",
                    **step.given | {"q": kgen.view(step.q, "fp16", (S, HKV, 32))})
        self.assertEqual(len(chosen), 3)
        self.refuse(TypeError, "a key, and arguments by name", launches.launch, **step.given)
        self.refuse(TypeError, "chooses a kgen.Kernel", kgen.Dispatcher("attn", (), lambda *_: 1).launch, 1)
        self.refuse(TypeError, "nobody: no argument", kgen.Dispatcher, "attn", ("nobody",), choose)
        self.refuse(kgen.KgenError, "d=65", kgen.Dispatcher, "attn:d=65", (), choose)
        self.refuse(ZeroDivisionError, "", kgen.Dispatcher("attn", (), lambda *_: 1 / 0).launch, 1)

    def test_words(self):
        self.assertEqual(kgen.spec("attn", phase="decode", alibi=True, d=64, table=None), "attn:phase=decode,alibi=1,d=64")
        self.assertRegex(kgen.refusal("attn:d=65", "gfx942"), "^d=65: out of bounds")
        self.assertIsNone(kgen.refusal(LINE, "gfx942"))
        self.assertIn("attn", kgen.families())
        self.assertEqual([row["name"] for row in kgen.arguments("attn")][:2], ["q", "k"])
        self.refuse(kgen.KgenError, "device", kgen.open, "tpu:0")
        self.refuse(ValueError, "one of auto", kgen.open, "cpu:cdna3", mode="fast")

    def test_what_the_command_says(self):
        """Names and order of arguments are those of `kgen explain --json`."""
        import json
        for family in kgen.families():
            command = [os.environ["KGEN_BIN_DIR"] + "/kgen", "explain", family, "--json"]
            said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            for name, launch in said["launches"].items():
                line = {"gdn": "gdn:layout=flat", "tree_mask": "scatter:op=tree_mask,mask=qlen"}.get(name)
                line = line or (f"scatter:op={name}" if family == "scatter" else family)
                want = [row["name"] for row in launch["tensors"] + launch["numbers"]]
                self.assertEqual([row["name"] for row in kgen.arguments(line)], want, name)


class MockState(ctypes.Structure):
    """mock_hip.h"""
    _fields_ = [("inits", ctypes.c_int), ("loads", ctypes.c_int * 2), ("unloads", ctypes.c_int * 2),
                ("launches", ctypes.c_int * 2), ("launched_on", ctypes.c_void_p), ("current", ctypes.c_void_p),
                ("pageable", ctypes.c_int)]


class Gpu(unittest.TestCase):
    """What only a GPU's context does, on a driver that computes nothing."""

    def setUp(self):
        mock = os.environ["KGEN_BIN_DIR"] + "/../tests/libmock_hip.so"
        self.state = MockState.in_dll(ctypes.CDLL(mock), "mock_hip_state")
        self.state.pageable = 1  # the tensors of this test are memory of the host
        self.ctx = kgen.open("hip:1", driver=mock)
        self.kernel = self.ctx.prepare("attn:phase=decode,d=64,g=1,page=16,layout=nhd")
        self.memory = bytearray(1 << 16)
        self.saved = {name: getattr(kgen.describe, name) for name in ("current_stream", "is_capturing")}

    def tearDown(self):
        for name, function in self.saved.items():
            setattr(kgen.describe, name, function)
        self.ctx.close()

    def launch(self, place=(10, 1), **more):
        address = kgen.view(self.memory, "i32", (1,)).address + 255 & ~255
        def at(dtype, *shape, layout=None):
            return kgen.Tensor(address, dtype, shape, layout=layout, place=place)
        row, page = at("bf16", 1, 1, 64), at("bf16", 4, 16, 1, 64, layout="nhd")
        self.kernel.launch(q=row, k=page, v=page, out=kgen.Tensor(address + 4096, "bf16", (1, 1, 64), place=place),
                           block_table=at("i32", 1, 2), seq_lens=at("i32", 1), softmax_scale=1.0, **more)
        return self.state.launched_on

    def test_device_and_stream(self):
        self.assertRegex(self.ctx.device, "^hip:1 ")
        before = sum(self.state.launches)
        self.assertEqual(self.launch(stream=4096), 4096)
        kgen.describe.current_stream = lambda index: 8192 + index
        self.assertEqual(self.launch(), 8193)
        self.assertEqual(self.launch((2, 1)), 8193)  # ROCm's tensors say cuda in some interfaces
        self.assertEqual(sum(self.state.launches), before + 3)
        for place in ((10, 0), (1, 0)):
            with self.assertRaisesRegex(kgen.KgenError, "q: it lies on (rocm|cpu):0, the kernel was prepared on hip:1"):
                self.launch(place)

    def test_workspaces(self):
        """A stream that captures gets the one made beforehand; the next one has to be reserved."""
        self.launch(stream=16)
        kgen.describe.is_capturing = lambda: True
        self.assertEqual(self.launch(stream=16), 16)
        self.assertEqual(self.launch(stream=32), 32)
        with self.assertRaisesRegex(kgen.KgenError, r"workspace: \d+ bytes wanted while the stream captures, 0 there"):
            self.launch(stream=48)
        kgen.describe.is_capturing = lambda: False
        self.ctx.reserve(1 << 24, 48)
        kgen.describe.is_capturing = lambda: True
        self.assertEqual(self.launch(stream=48), 48)
        with self.assertRaisesRegex(kgen.KgenError, "workspace: it|workspace: |address"):
            self.launch(stream=48, workspace=kgen.Tensor(64, "u8", (16,), place=(10, 1)))


if __name__ == "__main__":
    print(f"seed {SEED}")
    sys.exit(unittest.main())
