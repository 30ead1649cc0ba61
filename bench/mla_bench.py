"""Times kgen's latent attention (mla) on an NVIDIA GPU, beside vLLM's Triton MLA decode, FlashInfer's
BatchMLAPagedAttentionWrapper and FlashMLA.

Method, options and tables are those of attn_bench.py: graphs over cold pages, candidates alternate. The cached
row of 512 + 64 numbers is the key of all heads, its first 512 the value. See docs/bench.md.

  --grid      batch 1 to 128 by context 1k to 64k, with 16, 128, 8 and 64 heads
  --build     compile the kernels of the rows into the cache; needs no GPU and no torch
  --check     only compare small cases with a float32 reference (also --device cpu:sm90)
  --dry-run   all of it on small rows without a GPU
"""
import dataclasses
import itertools
import sys

import attn_bench
import harness
import kgen_ctypes as kg
from attn_bench import K

LATENT, ROPE = 512, 64
MODEL_DIM = 192  # of the heads that the absorbed form stands for: the softmax scale is theirs


@dataclasses.dataclass(frozen=True)
class Row(attn_bench.Row):
    q_heads: int = 16
    kv_heads: int = 1
    dim: int = LATENT + ROPE
    page: int = 64

    @property
    def spec(self):
        kv = {"fp8": "e4m3fn"}.get(self.kv_type, self.kv_type)
        phase = f"verify,t={max(self.q_lens)}" if self.is_ragged else "decode"
        return f"mla:phase={phase},q={self.x},kv={kv},l={LATENT},r={ROPE},h={self.q_heads},page={self.page}"

    @property
    def token_bytes(self):
        return self.dim * (1 if self.kv == "fp8" else 2)

    @property
    def flops(self):
        return 2 * self.pairs * self.q_heads * (self.dim + LATENT)

    def case(self, *args, **named):
        return Case(self, *args, **named)

    def ours(self, *args):
        return Kgen(*args)

    small_heads = {}  # a kernel is made for its heads


def usual_rows():
    def rows(pairs, **rest):
        return [Row(((s, n),), **rest) for s, n in pairs]
    most = [(1, 2 * K), (1, 8 * K), (1, 64 * K), (8, 8 * K), (8, 32 * K), (32, 4 * K), (32, 8 * K), (64, 8 * K),
            (128, 2 * K)]
    both = [rows(most, q_heads=heads) + rows([(8, 8 * K), (64, 8 * K)], q_heads=heads, kv="fp8")
            + rows([(32, 8 * K)], q_heads=heads, tokens=4) for heads in (16, 128)]
    return sum(both, []) + rows([(32, 8 * K)], q_heads=8) + rows([(32, 8 * K)], q_heads=64)


def rows(options):
    if not options.grid:
        return usual_rows()
    return sum((attn_bench.map_rows(lambda lens, heads=heads: Row(lens, q_heads=heads)) for heads in (16, 128, 8, 64)), [])


def dry_rows(rows, options):
    """The interpreter has no products of bf16, and emulated keys take time."""
    few = {row.spec: row for row in (dataclasses.replace(row, x="fp16", q_heads=min(row.q_heads, 16)) for row in rows)}
    return [dataclasses.replace(row.small("cpu"), lens=((1, row.tokens + 40), (1, row.page + 7))[:1 if row.is_ragged else 2])
            for row in few.values()]


class Case(attn_bench.Case):
    """V is the first columns of K; one descale for both."""
    descales = 0.8, 0.8
    scaled_dim = MODEL_DIM

    def make_pools(self, pages, kv_type, device):
        shape = (pages, self.row.page, 1, self.row.dim)
        pool = harness.Pools.take("latent", shape, kv_type, device, attn_bench.random_tensor)
        return pool, pool[..., :LATENT]


class Kgen(attn_bench.Kgen):
    def arguments(self, case, index):
        args = kg.Args("mla")
        mla = args.part
        mla.softmax_scale = case.scale
        mla.q, mla.out, mla.cache = kg.tensor(case.q), kg.tensor(case.out), kg.tensor(case.k[:, :, 0])
        mla.block_table, mla.seq_lens = kg.tensor(case.table[index]), kg.tensor(case.lens)
        if case.row.is_ragged:
            mla.cu_seqlens_q = kg.tensor(case.cu)
        if case.k_descale is not None:
            mla.descale = kg.tensor(case.k_descale)
        return args


if __name__ == "__main__":
    sys.exit(attn_bench.main("mla", __doc__, rows, dry_rows))
