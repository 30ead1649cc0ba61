"""Times kgen's latent attention (mla) on an NVIDIA GPU, beside vLLM's Triton MLA decode, FlashInfer's
BatchMLAPagedAttentionWrapper and FlashMLA.

Method, options and tables are those of attn_bench.py: graphs over cold pages, candidates alternate. The cached
row of 512 + 64 numbers is the key of all heads, its first 512 the value. See docs/bench.md.

  --grid      batch 1 to 128 by context 1k to 64k, with 16, 128, 8 and 64 heads
  --uneven    lengths as they come, with 16, 64 and 128 heads
  --build     compile the kernels of the rows into the cache; needs no GPU and no torch
  --check     only compare small cases with a float32 reference (also --device cpu:sm90)
  --dry-run   all of it on small rows without a GPU
"""
import dataclasses
import sys

try:
    import torch
except ImportError:  # --build does without
    torch = None

import attn_bench
import harness
import kgen_ctypes as kg
from attn_bench import K

LATENT, ROPE = 512, 64
BLOCK = 128  # codes that share a scale, in rows of bytes
ROW_BYTES = LATENT + LATENT // BLOCK * 4 + 2 * ROPE
MODEL_DIM = 192  # of the heads that the absorbed form stands for: the softmax scale is theirs


@dataclasses.dataclass(frozen=True)
class Row(attn_bench.Row):
    q_heads: int = 16
    kv_heads: int = 1
    dim: int = LATENT + ROPE
    page: int = 64
    is_listed: bool = False  # slots of 656-byte rows, as an indexer chooses them; a page is one token

    @property
    def kv_type(self):
        return "656b" if self.is_listed else super().kv_type

    @property
    def spec(self):
        if self.is_listed:
            return (f"mla:phase=decode,q={self.x},kv={self.x},rows=e4m3fn,l={LATENT},r={ROPE},h={self.q_heads},"
                    f"page={self.page},sparse=1")
        kv = {"fp8": "e4m3fn"}.get(self.kv_type, self.kv_type)
        phase = f"verify,t={max(self.q_lens)}" if self.is_ragged else "decode"
        return f"mla:phase={phase},q={self.x},kv={kv},l={LATENT},r={ROPE},h={self.q_heads},page={self.page}"

    @property
    def token_bytes(self):
        return ROW_BYTES if self.is_listed else self.dim * (1 if self.kv == "fp8" else 2)

    @property
    def flops(self):
        return 2 * self.pairs * self.q_heads * (self.dim + LATENT)

    def case(self, *args, **named):
        return Case(self, *args, **named)

    def ours(self, *args):
        return Kgen(*args)

    def small(self, device):
        return dataclasses.replace(self, lens=((3, 192),)) if self.is_listed else super().small(device)

    small_heads = {}  # a kernel is made for its heads


def usual_rows():
    def rows(pairs, **rest):
        return [Row(((s, n),), **rest) for s, n in pairs]
    most = [(1, 2 * K), (1, 8 * K), (1, 64 * K), (8, 8 * K), (8, 32 * K), (32, 4 * K), (32, 8 * K), (64, 8 * K),
            (128, 2 * K)]
    both = [rows(most, q_heads=heads) + rows([(8, 8 * K), (64, 8 * K)], q_heads=heads, kv="fp8")
            + rows([(32, 8 * K)], q_heads=heads, tokens=4) for heads in (16, 128)]
    lists = [rows([(s, 2 * K) for s in batches], q_heads=heads, page=1, is_listed=True)
             for heads, batches in ((64, (64,)), (128, (1, 8, 32, 64, 128)))]
    return sum(both, []) + rows([(32, 8 * K)], q_heads=8) + rows([(32, 8 * K)], q_heads=64) + sum(lists, [])


def rows(options):
    if options.uneven:
        return sum((attn_bench.uneven_rows(options.seed, lambda lens, heads=heads: Row(lens, q_heads=heads))
                    for heads in (16, 64, 128)), [])
    if not options.grid:
        return usual_rows()
    return sum((attn_bench.map_rows(lambda lens, heads=heads: Row(lens, q_heads=heads)) for heads in (16, 128, 8, 64)), [])


def dry_rows(rows, options):
    """The interpreter has no products of bf16, and emulated keys take time."""
    few = {row.spec: row for row in (dataclasses.replace(row, x="fp16", q_heads=min(row.q_heads, 16)) for row in rows)}
    return [row.small("cpu") if row.is_listed else dataclasses.replace(
                row.small("cpu"), lens=((1, row.tokens + 40), (1, row.page + 7))[:1 if row.is_ragged else 2])
            for row in few.values()]


def random_rows(count, dtype, device):
    """Bytes of rows: codes, scales that are powers of two, and the rope part, as numbers of `dtype`."""
    rows = torch.empty(count // ROW_BYTES, ROW_BYTES, dtype=torch.uint8, device=device)
    codes, scales, rope = rows.split((LATENT, ROW_BYTES - LATENT - 2 * ROPE, 2 * ROPE), 1)
    codes.copy_(attn_bench.random_tensor(codes.shape, torch.float8_e4m3fn, device).view(torch.uint8))
    scales.copy_(torch.randint(-1, 2, (len(rows), LATENT // BLOCK), device=device).float().exp2().view(torch.uint8))
    rope.copy_(attn_bench.random_tensor((len(rows), ROPE), dtype, device).view(torch.uint8))
    return rows.flatten()


def numbers_of(rows, dtype):
    """float32 of [n][bytes]"""
    codes, scales, rope = rows.split((LATENT, ROW_BYTES - LATENT - 2 * ROPE, 2 * ROPE), 1)
    codes = codes.contiguous().view(torch.float8_e4m3fn).float().unflatten(1, (-1, BLOCK))
    latent = (codes * scales.contiguous().view(torch.float32)[:, :, None]).flatten(1)
    return torch.cat([latent, rope.contiguous().view(dtype).float()], 1)


class Case(attn_bench.Case):
    """V is the first columns of K; one descale for both."""
    descales = 0.8, 0.8
    scaled_dim = MODEL_DIM

    def make_pools(self, pages, kv_type, device):
        if self.row.is_listed:
            pool = harness.Pools.take(f"rows {kv_type}", (pages, self.row.page, 1, ROW_BYTES), torch.uint8, device,
                                      lambda count, _, device: random_rows(count, kv_type, device))
            return pool, pool[..., :LATENT]
        shape = (pages, self.row.page, 1, self.row.dim)
        pool = harness.Pools.take("latent", shape, kv_type, device, attn_bench.random_tensor)
        return pool, pool[..., :LATENT]

    def gather(self, pool, index, seq, head):
        if not self.row.is_listed:
            return super().gather(pool, index, seq, head)
        slots = self.table[index, seq, :int(self.lens[seq])].long()
        return numbers_of(self.k[slots, 0, 0], self.row.dtype)[:, :LATENT if pool is self.v else None]


class Kgen(attn_bench.Kgen):
    def arguments(self, case, index):
        args = kg.Args("mla")
        mla = args.part
        mla.softmax_scale = case.scale
        mla.q, mla.out, mla.cache = kg.tensor(case.q), kg.tensor(case.out), kg.tensor(case.k[:, :, 0])
        mla.seq_lens = kg.tensor(case.lens)
        if case.row.is_listed:
            mla.slots = kg.tensor(case.table[index])
        else:
            mla.block_table = kg.tensor(case.table[index])
        if case.row.is_ragged:
            mla.cu_seqlens_q = kg.tensor(case.cu)
        if case.k_descale is not None:
            mla.descale = kg.tensor(case.k_descale)
        return args


if __name__ == "__main__":
    sys.exit(attn_bench.main("mla", __doc__, rows, dry_rows))
