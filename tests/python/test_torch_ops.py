"""torch.ops.kgen and torch's tensors: schemas, no graph break, the same bits compiled. Run by with_torch.sh."""
import os
import random
import subprocess
import sys
import unittest
from pathlib import Path

os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # graphs of another schema would be taken from the disk

import numpy
import torch

import kgen
import kgen.ops  # defines torch.ops.kgen

SEED = int(os.environ.get("KGEN_TEST_SEED") or random.randrange(1 << 31))
torch.manual_seed(SEED)
LINE = "attn:phase=decode,d=64,g=2,page=16,layout=nhd"
S, HKV, D = 3, 2, 64


def step():
    return {"q": torch.randn(S, 2 * HKV, D).bfloat16(), "k": torch.randn(8, 16, HKV, D).bfloat16(),
            "v": torch.randn(8, 16, HKV, D).bfloat16(), "block_table": torch.arange(6, dtype=torch.int32).view(3, 2),
            "seq_lens": torch.tensor([5, 20, 32], dtype=torch.int32)}


def attend(q, k, v, block_table, seq_lens):
    out = torch.empty_like(q)
    torch.ops.kgen.attn(LINE, "k=nhd,v=nhd", q=q * 2, k=k, v=v, out=out, block_table=block_table, seq_lens=seq_lens,
                        softmax_scale=0.125)
    return out.float() + 1


class Ops(unittest.TestCase):
    def test_opcheck(self):
        given = step()
        found = torch.library.opcheck(torch.ops.kgen.attn.default, (LINE, "k=nhd,v=nhd"),
                                      {**given, "out": torch.empty_like(given["q"]), "softmax_scale": 0.125})
        self.assertEqual(set(found.values()), {"SUCCESS"})

    def test_compiled_without_a_break(self):
        given, want = step(), None
        for back_end in ("eager", "aot_eager", "inductor"):
            got = torch.compile(attend, fullgraph=True, backend=back_end)(**given)
            want = attend(**given) if want is None else want
            self.assertTrue(torch.equal(got, want), back_end)

    def test_written_arguments_are_said_so(self):
        schema = str(torch.ops.kgen.gdn.default._schema)
        self.assertRegex(schema, r"Tensor\(a\d+!\)\? state=None")
        self.assertRegex(schema, r" Tensor\? slots=None")
        written = str(torch.ops.kgen.scatter_spec_prepare.default._schema)
        self.assertRegex(written, r"Tensor\(a\d+!\)\? qo_indptr=None")

    def test_scales_that_are_written(self):
        """By scale=token; scale=head reads them. A compiler that takes them for inputs alone moves what reads them."""
        line, layouts = "kv_write:kv=i8,d=64,page=16,layout=nhd,scale=token", "k_cache=nhd,v_cache=nhd,k_scale=nhd,v_scale=nhd"
        (k, v), slots, caches = torch.randn(2, 5, 2, 64).bfloat16(), torch.randperm(64)[:5], torch.zeros(2, 4, 16, 2, 64, dtype=torch.int8)

        def write(k, v, caches):
            scales = torch.zeros(2, 4, 16, 2)
            torch.ops.kgen.kv_write(line, layouts, k=k, v=v, slots=slots, k_cache=caches[0], v_cache=caches[1], k_scale=scales[0],
                                    v_scale=scales[1])
            return scales * 2

        want = write(k, v, caches.clone())
        self.assertEqual(want.count_nonzero().item(), 20)
        for back_end in ("aot_eager", "inductor"):
            self.assertTrue(torch.equal(torch.compile(write, fullgraph=True, backend=back_end)(k, v, caches.clone()), want), back_end)

    def test_errors(self):
        with self.assertRaisesRegex(TypeError, "no tensor is given"):
            torch.ops.kgen.attn(LINE)
        with self.assertRaisesRegex(kgen.KgenError, "k: layout is none"):
            given = step()
            torch.ops.kgen.attn(LINE, out=torch.empty_like(given["q"]), **given, softmax_scale=0.125)


class Batches(unittest.TestCase):
    """Attention has a kernel for each class of batches, where that is faster: all of them by the first use of its line."""

    def run_batch(self, line, batch):
        cache = torch.randn(2, 1, 4, 16, D).bfloat16()
        table = torch.arange(4, dtype=torch.int32).expand(batch, 4).contiguous()
        lengths = torch.randint(1, 65, (batch,), dtype=torch.int32)
        q = torch.randn(batch, 2, D).bfloat16()
        out = torch.empty_like(q)
        torch.ops.kgen.attn(line, "k=hnd,v=hnd", q=q, k=cache[0].transpose(0, 1), v=cache[1].transpose(0, 1), out=out,
                            block_table=table, seq_lens=lengths, softmax_scale=D ** -0.5)
        for row, length in enumerate(lengths):
            keys, values = (part.reshape(64, D)[:length].float() for part in cache)
            want = torch.softmax(q[row].float() @ keys.T * D ** -0.5, -1) @ values
            self.assertLess((out[row].float() - want).abs().max(), 0.03, f"{batch} sequences, row {row}")

    def test_a_kernel_for_each(self):
        """On the H100's persona in a process of its own, since a process has one context a device."""
        code = (f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
                "import kgen.contexts; kgen.contexts.configure(cpu='cpu:sm90')\n"
                "import test_torch_ops as t; case = t.Batches('run_batch')\n"
                "line = 'attn:phase=decode,d=64,g=2,page=16,layout=hnd'\n"
                "case.run_batch(line, 3)\n"
                "made = dict(kgen.contexts.kernels)\n"
                "assert {key[3] for key in made} == set(kgen.contexts.BATCHES), made.keys()\n"
                "assert len({kernel.spec for kernel in made.values()}) > 2, made\n"
                "assert 'cluster' in made['cpu', line, 1, 4].spec, made['cpu', line, 1, 4].spec\n"
                "for batch in (1, 17, 64): case.run_batch(line, batch)\n"
                "assert made == kgen.contexts.kernels\n")
        subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)

    def test_classes(self):
        self.assertEqual([kgen.contexts.batch_class(n) for n in (0, 1, 2, 3, 5, 64, 65, 128, 129, 4000)],
                         [0, 1, 2, 4, 8, 64, 128, 128, 0, 0])


class Tensors(unittest.TestCase):
    def launch(self, **changed):
        given = step() | changed
        out = torch.empty(S, 2 * HKV, D, dtype=torch.bfloat16)
        kernel = kgen.contexts.kernel_of(torch.device("cpu"), LINE)
        kernel.launch(**{name: (value, "nhd") if name in "kv" else value for name, value in given.items()}, out=out,
                      softmax_scale=0.125)
        return out

    def test_all_ways_to_say_a_tensor(self):
        given = step()
        want = self.launch(**given)

        class Attributes:  # a torch without DLPack's exchange table
            def __init__(self, x):
                self.x, self.data_ptr, self.stride, self.get_device = x, x.data_ptr, x.stride, x.get_device
                self.dtype, self.shape = x.dtype, x.shape

        class Interface:  # an array of another library
            def __init__(self, x):
                self.__array_interface__ = x.__array_interface__

        table, lengths = given["block_table"], given["seq_lens"]
        for other in (kgen.Tensor.of(lengths), Attributes(lengths), lengths.numpy(), Interface(lengths.numpy()),
                      memoryview(lengths.numpy())):
            self.assertTrue(torch.equal(self.launch(**given | {"seq_lens": other}), want), type(other))
        wide = numpy.zeros((3, 4), dtype=numpy.int32)
        wide[:, :2] = table.numpy()
        self.assertTrue(torch.equal(self.launch(**given | {"block_table": wide[:, :2]}), want))
        bits = kgen.view(given["q"].view(torch.uint16).numpy(), "bf16", (S, 2 * HKV, D))
        self.assertTrue(torch.equal(self.launch(**given | {"q": bits}), want))

    def test_refused(self):
        with self.assertRaisesRegex(TypeError, "rank 6, at most 5"):
            self.launch(q=torch.zeros(1, 1, 1, 1, 1, 1))
        with self.assertRaisesRegex(TypeError, "DLPack's type"):
            self.launch(q=torch.zeros(3, dtype=torch.complex64))
        with self.assertRaisesRegex(kgen.KgenError, "q: dtype f32, kernel built for bf16"):
            self.launch(q=torch.zeros(3, 4, 64))


if __name__ == "__main__":
    print(f"seed {SEED}")
    sys.exit(unittest.main())
