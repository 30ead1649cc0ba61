"""Times kgen's paged attention on an NVIDIA GPU, beside the unified attention of AITER and vLLM,
FlashInfer, and torch.

All run in one process over the same tensors: a CUDA graph holds N launches, each with its own
set of pages (random permutations over a pool of gigabytes), so no launch finds its keys in the
L2 cache; replays of all candidates alternate. See docs/bench.md.

  --grid      batch 1 to 128 by context 1k to 64k of one kernel instead of the usual rows, few samples each
  --extend    queries of many tokens: prefill, chunks over context, decodes beside a chunk
  --prefix    decodes of sequences with a prefix in common
  --uneven    batches of lengths as they come: drawn with --seed, from an eighth of the mean to fifteen
  --build     compile the kernels of the rows into the cache; needs no GPU and no torch
  --check     only compare small cases with a float32 reference (also --device cpu:sm90)
  --dry-run   all of it on small rows without a GPU: ours on cpu:sm90, the peers' kernels interpreted
"""
import argparse
import copy
import dataclasses
import importlib
import itertools
import os
import random
import re
import statistics
import sys
import time

import harness
import kgen_ctypes as kg

try:
    import torch
    import triton
    import triton.language as tl
except ImportError:  # --build does without
    torch = triton = None

K = 1024
COLD_BYTES = 1 << 30
POOL_BYTES = 24 << 30
POOL_PAGES = 1 << 16
MIN_LAUNCHES, MAX_LAUNCHES = 4, 64
GRID_BYTES = 40e9  # of keys and values in the largest cell
GRID_SECONDS = 90
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
VERIFY_TOKENS = 16  # more are the phase extend
CONTEXTS = (1 * K, 2 * K, 8 * K, 32 * K, 64 * K)


# ---- the grid ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Row:
    lens: tuple  # (count, keys), or (count, keys, tokens), ...
    tokens: int = 1  # where lens says nothing
    q_heads: int = 64
    kv_heads: int = 8
    dim: int = 128
    page: int = 16
    kv: str = "bf16"
    window: int = 0
    x: str = "bf16"  # of queries, and of a cache that is not fp8
    prefix: int = 0  # keys that all sequences have in the same pages
    cascade: str = ""  # the phase that knows of it

    @property
    def name(self):
        def short(n):
            return f"{n // K}k" if n % K == 0 else str(n)
        lens = "+".join(f"{n}x{short(k)}" + "".join(f"t{short(t)}" for t in rest) for n, k, *rest in self.lens)
        if len(self.lens) > 4:
            lens = f"{len(self.seq_lens)}x~{short(sum(self.seq_lens) // len(self.seq_lens))}"
        extra = (f" w{self.window}" if self.window else "") + (f" t{self.tokens}" if self.tokens > 1 else "")
        extra += f" prefix{self.prefix}" * bool(self.prefix) + f" {self.cascade}-cascade" * bool(self.cascade)
        return f"{self.kv_type} h{self.q_heads}/{self.kv_heads} d{self.dim} p{self.page}{extra} {lens}"

    @property
    def spec(self):
        most, kv = max(self.q_lens), {"fp8": "e4m3fn"}.get(self.kv_type, self.kv_type)
        phase = self.cascade or ("decode" if most == 1 else "verify" if most <= VERIFY_TOKENS else "extend")
        tokens = f",t={most}" if phase == "verify" else ""
        window = f",window={self.window}" if self.window else ""
        return (f"attn:phase={phase},q={self.x},kv={kv},d={self.dim},g={self.group}{tokens}"
                f",page={self.page},layout=nhd{window}" + ",cascade=1" * bool(self.cascade))

    @property
    def kv_type(self):
        return "fp8" if self.kv == "fp8" else self.x

    @property
    def group(self):
        return self.q_heads // self.kv_heads

    @property
    def seq_lens(self):
        return [keys for count, keys, *_ in self.lens for _ in range(count)]

    @property
    def q_lens(self):
        return [rest[0] if rest else self.tokens for count, _, *rest in self.lens for _ in range(count)]

    @property
    def is_ragged(self):
        return max(self.q_lens) > 1 or self.cascade == "extend"

    @property
    def dtype(self):
        return {"bf16": torch.bfloat16, "fp16": torch.float16}[self.x]

    @property
    def token_bytes(self):
        """Of a cached token: K and V of all heads."""
        return 2 * self.kv_heads * self.dim * (1 if self.kv == "fp8" else 2)

    @property
    def kv_bytes(self):
        """What one launch has to read: keys in sight."""
        keys = sum(min(n, self.window + t - 1) if self.window else n for n, t in zip(self.seq_lens, self.q_lens))
        return keys * self.token_bytes

    @property
    def pairs(self):
        """Keys that the queries of a head see, all queries together."""
        def seen(n, t):
            return sum(min(n - t + i + 1, self.window or n) for i in range(t))
        return sum(count * seen(keys, rest[0] if rest else self.tokens) for count, keys, *rest in self.lens)

    @property
    def problem(self):
        """What an engine says of a graph: sequences, their keys, KV heads."""
        return len(self.seq_lens), sum(self.seq_lens) // len(self.seq_lens), self.kv_heads

    @property
    def flops(self):
        """Of both products, over the keys that each query sees."""
        return 4 * self.pairs * self.q_heads * self.dim

    def case(self, *args, **named):
        return Case(self, *args, **named)

    def ours(self, *args):
        return Kgen(*args)

    def small(self, device):
        """The same kernel over three short sequences."""
        if max(self.q_lens) > VERIFY_TOKENS:
            lens = ((1, 50, 50), (1, 90, 20), (1, 150, 1))
        else:
            lens = tuple((1, n) for n in (self.tokens, self.page + 7, 150 if device == "cpu" else 2500))
        return dataclasses.replace(self, lens=lens, **self.small_heads)

    @property
    def small_heads(self):
        return {"q_heads": 2 * self.group, "kv_heads": 2}


def usual_rows():
    def rows(pairs, **rest):
        return [Row(((s, n),), **rest) for s, n in pairs]
    return (rows([(1, 2 * K), (1, 8 * K), (1, 64 * K), (4, 8 * K), (8, 8 * K), (8, 32 * K), (32, 4 * K),
                  (32, 8 * K), (64, 8 * K), (128, 2 * K)])
            + [Row(((1, 64 * K), (31, 4 * K)))]
            + rows([(8, 8 * K), (64, 8 * K)], kv="fp8")
            + rows([(1, 8 * K), (8, 8 * K), (32, 8 * K)], tokens=4)
            + rows([(8, 8 * K), (64, 8 * K)], q_heads=16, kv_heads=2, dim=256, page=64)
            + rows([(32, 8 * K)], dim=64, window=128)
            + rows([(64, 8 * K)], q_heads=8, kv_heads=1))


def extend_rows():
    def rows(triples, **rest):
        return [Row(((s, n, t),), **rest) for s, n, t in triples]
    small = dict(q_heads=32, kv_heads=8)
    return (rows([(1, 512, 512), (1, 2 * K, 2 * K), (8, 2 * K, 2 * K), (1, 8 * K, 8 * K), (2, 32 * K, 2 * K),
                  (4, 8 * K, 512), (16, 2 * K, 128)], **small)
            + [Row(((1, 4 * K, 4 * K), (3, 1 * K, 1 * K), (12, 256, 256)), **small),
               Row(((32, 8 * K, 1),), **small),
               Row(((32, 8 * K, 1), (1, 2 * K, 2 * K)), **small)]
            + rows([(4, 2 * K, 2 * K), (4, 8 * K, 512)], dim=64, **small)
            + rows([(4, 2 * K, 2 * K), (4, 8 * K, 512)], dim=256, q_heads=16, kv_heads=2, page=64)
            + rows([(4, 2 * K, 2 * K), (1, 8 * K, 8 * K), (4, 8 * K, 512)], kv="fp8", **small)
            + rows([(4, 8 * K, 512)], dim=256, q_heads=16, kv_heads=2, page=64, kv="fp8")
            + rows([(4, 8 * K, 2 * K)], window=1 * K, **small))


def prefix_rows():
    """32 sequences of 8704 keys: each with pages of its own, then with 8160 keys in common."""
    lens, prefix = ((32, 8704),), 8160
    return [Row(lens), Row(lens, prefix=prefix)] + [Row(lens, prefix=prefix, cascade=phase)
                                                    for phase in ("decode", "extend")]


def uneven_rows(seed, make=Row):
    """Lengths of a sum that is theirs if all were alike."""
    def lens(batch, mean):
        drawn = random.Random(f"{seed} {batch} {mean}")
        parts = [drawn.uniform(1 / 8, 15 / 8) for _ in range(batch)]
        keys = [max(int(part * batch * mean / sum(parts)), 1) for part in parts]
        return tuple((1, n) for n in [*keys[1:], batch * mean - sum(keys[1:])])
    return [make(lens(batch, mean)) for mean in (1 * K, 2 * K, 8 * K) for batch in (8, 16, 32, 64, 128)]


def map_rows(make=Row):
    """Batch by context. Neighbours of a cell that is timed in the first half are timed in the second: what a
    budget cuts off leaves no corner empty."""
    cells = [(b + c, make(((batch, keys),))) for b, batch in enumerate(BATCHES) for c, keys in enumerate(CONTEXTS)]
    rows = [row for place, row in sorted(cells, key=lambda cell: cell[0] % 2)]
    return [row for row in rows if row.kv_bytes <= GRID_BYTES]


# ---- data and reference -----------------------------------------------------


class Case:
    """Tensors of a row: one pool of pages, `sets` block tables without a page in common."""

    def __init__(self, row, device, sets, pool_pages, distinct=True):
        self.row, self.sets = row, sets
        lens = row.seq_lens
        pages = torch.tensor([-(-n // row.page) for n in lens])
        need = int(pages.sum()) * sets if distinct else 0
        count = max(need, pool_pages)
        self.k, self.v = self.make_pools(count, torch.float8_e4m3fn if row.kv == "fp8" else row.dtype, device)
        self.table = self.make_table(count, pages, distinct).to(device)
        ends = [0, *itertools.accumulate(row.q_lens)]
        tokens = ends[-1]
        self.q = random_tensor((tokens, row.q_heads, row.dim), row.dtype, device)
        self.out = torch.full_like(self.q[..., :self.v.shape[-1]], float("nan"), memory_format=torch.contiguous_format)
        self.lens = torch.tensor(lens, dtype=torch.int32, device=device)
        self.ends, self.cu = ends, torch.tensor(ends, dtype=torch.int32, device=device)
        self.prefix_seqs = torch.tensor([0, len(lens)], dtype=torch.int32, device=device)
        self.prefix_lens = torch.tensor([row.prefix], dtype=torch.int32, device=device)
        self.k_descale, self.v_descale = (
            torch.tensor([x], device=device) if row.kv == "fp8" else None for x in self.descales)
        self.scale = self.scaled_dim ** -0.5
        self.wanted = {}

    descales = 0.8, 1.3

    @property
    def scaled_dim(self):
        return self.row.dim

    def make_pools(self, pages, kv_type, device):
        """K and V, [page][token][head][channel]"""
        shape = (pages, self.row.page, self.row.kv_heads, self.row.dim)
        return (harness.Pools.take(name, shape, kv_type, device, random_tensor) for name in "kv")

    def make_table(self, pool_pages, pages, distinct):
        """[set][S][pages]; entries past a sequence's end name some page of the pool."""
        widest = int(pages.max())
        table = torch.randint(pool_pages, (self.sets, len(pages), widest), dtype=torch.int32)
        if distinct:
            used = torch.arange(widest)[None, :] < pages[:, None]
            order = torch.randperm(pool_pages, dtype=torch.int32)[:self.sets * int(pages.sum())]
            table[:, used] = order.view(self.sets, -1)
        shared = self.row.prefix // self.row.page
        table[:, :, :shared] = table[:, :1, :shared].clone()
        return table

    def gather(self, pool, index, seq, head):
        row, length = self.row, int(self.lens[seq])
        pages = self.table[index, seq, :-(-length // row.page)].long()
        chosen = pool.view(torch.uint8)[pages, :, head] if row.kv == "fp8" else pool[pages, :, head]
        return chosen.reshape(-1, pool.shape[-1])[:length].view(pool.dtype).float()

    def rows_of(self, tensor, seq, head):
        """[t][G][D] of a sequence and the heads of a KV head, float32"""
        group = self.row.group
        return tensor[self.ends[seq]:self.ends[seq + 1], head * group:(head + 1) * group].float()

    def reference(self, index, seq, head):
        """[t][G][D] of one sequence and KV head, float32."""
        row, length, tokens = self.row, int(self.lens[seq]), self.row.q_lens[seq]
        q = self.rows_of(self.q, seq, head)
        k, v = (self.gather(pool, index, seq, head) for pool in (self.k, self.v))
        descales = (float(self.k_descale), float(self.v_descale)) if row.kv == "fp8" else (1.0, 1.0)
        scores = torch.einsum("tgd,nd->tgn", q, k) * (self.scale * descales[0])
        key = torch.arange(length, device=q.device)
        distance = (length - tokens + torch.arange(tokens, device=q.device))[:, None] - key[None, :]
        hidden = (distance < 0) | (distance >= row.window if row.window else False)
        scores.masked_fill_(hidden[:, None, :], float("-inf"))
        return torch.einsum("tgn,nd->tgd", scores.softmax(-1), v) * descales[1]

    def reference_once(self, *place):
        if place not in self.wanted:
            self.wanted[place] = self.reference(*place)
        return self.wanted[place]

    def error(self, out, index):
        """(largest error, largest reference value) over some sequences and heads; NaN counts."""
        row, worst, largest = self.row, 0.0, 0.0
        seqs = {0, len(row.seq_lens) // 2, len(row.seq_lens) - 1}
        for seq, head in itertools.product(seqs, {0, row.kv_heads - 1}):
            want = self.reference_once(index, seq, head)
            got = self.rows_of(out, seq, head)
            difference = (got - want).abs().max().item()
            worst = max(worst, float("inf") if difference != difference else difference)
            largest = max(largest, want.abs().max().item())
        return worst, largest


def random_tensor(shape, dtype, device):
    if dtype != torch.float8_e4m3fn:
        return torch.randn(shape, dtype=dtype, device=device)
    out = torch.empty(shape, dtype=dtype, device=device)
    for part in out.split(1 << 28):  # the wider values take memory only by parts
        part.copy_(torch.randn(part.shape, dtype=torch.bfloat16, device=device))
    return out


def case_sets(row, options):
    """N launches with N sets of pages: a gigabyte of keys in sight, within the pool's size. What a large cell of
    the map has in sight is many times the L2 cache: one launch will do."""
    if options.dry_run:
        return 2
    per_set = sum(row.seq_lens) * row.token_bytes
    sets = min(MAX_LAUNCHES, max(MIN_LAUNCHES, -(-COLD_BYTES // row.kv_bytes)))
    return min(sets, max(1 if options.grid else MIN_LAUNCHES, POOL_BYTES // per_set))


# ---- candidates: name, and run(case, set) in torch's current stream -----------


class Kgen:
    def __init__(self, context, row, variant, device):
        self.name = f"kgen {variant}" if variant else "kgen"
        self.context, self.device, self.args, self.held = context, device, [], None
        self.kernel = context.prepare(harness.with_tuning(row.spec, variant), row.problem)

    def bind(self, case):
        self.args = [self.arguments(case, index) for index in range(case.sets)]
        size = self.context.workspace_bytes(self.kernel, self.args[0])
        self.held = torch.empty(size + 256, dtype=torch.uint8, device=self.device)
        memory = -(-self.held.data_ptr() // 256) * 256
        self.context.workspace_init(memory, size, harness.current_stream(self.device))
        for args in self.args:
            args.workspace, args.workspace_bytes = memory, size

    def arguments(self, case, index):
        args = kg.Args("attn")
        attn = args.part
        attn.softmax_scale = case.scale
        attn.q, attn.out = kg.tensor(case.q), kg.tensor(case.out)
        attn.k, attn.v = kg.tensor(case.k, "nhd"), kg.tensor(case.v, "nhd")
        attn.block_table, attn.seq_lens = kg.tensor(case.table[index]), kg.tensor(case.lens)
        if case.row.is_ragged:
            attn.cu_seqlens_q = kg.tensor(case.cu)
        if case.row.cascade:
            attn.prefix_seqs, attn.prefix_lens = kg.tensor(case.prefix_seqs), kg.tensor(case.prefix_lens)
        if case.k_descale is not None:
            attn.k_descale, attn.v_descale = kg.tensor(case.k_descale), kg.tensor(case.v_descale)
        return args

    def run(self, case, index):
        self.context.launch(self.kernel, self.args[index], harness.current_stream(self.device))
        return case.out

    def finish(self):
        self.context.sync(harness.current_stream(self.device))


def candidates(row, options, context, device, peers):
    made = []
    for variant in harness.variants_of(options):
        try:
            made.append(row.ours(context, row, variant, device))
        except kg.KgenError as error:
            print(f"  {row.name}: kgen {variant}: {error}", flush=True)
    return made + [copy.copy(peer) for peer in peers if peer.takes(row)]


def try_once(candidate, case, index=0):
    """One launch and its error; None where the candidate cannot run the case."""
    case.out.fill_(float("nan"))
    try:
        candidate.bind(case)
        out = candidate.run(case, index)
        candidate.finish()
    except Exception as error:  # a peer may fail in any way; the others go on
        print(f"  {case.row.name}: {candidate.name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return None
    return case.error(out, index)


# ---- correctness --------------------------------------------------------------


def small_rows(rows, device):
    """One for each kernel."""
    return {row.spec: row.small(device) for row in rows}.values()


def is_right(result):
    """Products of 16-bit numbers: 1/64 of the largest value is allowed."""
    return result is not None and result[0] <= result[1] / 64


def check(rows, options, context, device, peers):
    """Returns how many kernels of ours failed."""
    failed = 0
    for row in small_rows(rows, device):
        case = row.case(device, 2, 100)
        for candidate in candidates(row, options, context, device, peers):
            result = try_once(candidate, case, 1)
            good = is_right(result)
            failed += not good and isinstance(candidate, Kgen)
            said = f"error {result[0]:.2g} of {result[1]:.2g}" if result else "did not run"
            print(f"check {'ok  ' if good else 'FAIL'} {candidate.name:12} {said:24} {row.spec}", flush=True)
    return failed


# ---- time ---------------------------------------------------------------------


def time_row(row, options, context, device, peers, read_gbs):
    """Every candidate is compared on the last set, which is not the one that a peer may have planned for."""
    sets = case_sets(row, options)
    case = row.case(device, sets, 256 if device == "cpu" else POOL_PAGES)
    graphs, errors, own, wrong = {}, {}, [], []
    for candidate in candidates(row, options, context, device, peers):
        result = try_once(candidate, case, sets - 1)
        if not is_right(result):
            print(f"  {row.name}: {candidate.name}: WRONG, left out: {result}", flush=True)
            wrong.append(candidate.name)
            continue
        errors[candidate.name] = result
        for index in range(sets):
            candidate.run(case, index)
        graphs[candidate.name] = harness.capture(candidate, case, device)
        if not isinstance(candidate, Kgen) and candidate.is_own_choice(row):
            own.append(candidate.name)
    times = harness.interleave(graphs, sets, options.repeats)
    return {**summary(row, sets, times, errors, own, read_gbs), "wrong": " ".join(wrong)}


def shape_of(row):
    """What a row is about, for those who read the files."""
    batch = len(row.seq_lens)
    return {"batch": batch, "context": row.lens[0][1] if len(row.lens) == 1 else None, "tokens": max(row.q_lens),
            "q_heads": row.q_heads, "kv_heads": row.kv_heads, "dim": row.dim, "page": row.page, "x": row.x,
            "kv": row.kv_type, "window": row.window, "flops": row.flops}


def summary(row, sets, times, errors, own, read_gbs):
    median = {n: statistics.median(t) for n, t in times.items()}
    kgen = {n: t for n, t in median.items() if n.startswith("kgen")}
    peer = {n: t for n, t in median.items() if not n.startswith("kgen")}
    best = min(peer, key=peer.get) if peer else None
    base = kgen.get("kgen")
    families = {family: [us for n, us in peer.items() if n.split("-")[0] == family] for family in FAMILIES}
    return {
        "row": row.name, "spec": row.spec, "launches": sets, "kv_mb": row.kv_bytes / 1e6,
        "kgen_us": base, "kgen_min_us": min(times["kgen"]) if base else None,
        "kgen_share": row.kv_bytes / base / 1e3 / read_gbs if base else None,
        "kgen_tflops": row.flops / base / 1e6 if base else None,
        "kgen_error": errors["kgen"][0] if base else None,
        "kgen_variants": kgen, "peer_us": peer.get(best), "peer_min_us": min(times[best]) if best else None,
        "peer_best": best, "peer_own": " ".join(own), "peer_error": errors[best][0] if best else None,
        "peer_configs": peer, "ratio": peer[best] / base if best and base else None,
        "largest_value": max((e[1] for e in errors.values()), default=None),
        **{f"{family}_us": min(us, default=None) for family, us in families.items()}, **shape_of(row),
    }


# ---- ceilings -----------------------------------------------------------------

if triton:
    @triton.jit
    def read_kernel(src, dst, rounds, BLOCK: tl.constexpr):
        """Sums rounds * BLOCK words a program; programs advance side by side."""
        block = tl.program_id(0).to(tl.int64)
        sums = tl.zeros([BLOCK], dtype=tl.int32)
        for _ in range(rounds):
            sums += tl.load(src + block * BLOCK + tl.arange(0, BLOCK))
            block += tl.num_programs(0)
        tl.store(dst + tl.program_id(0), tl.sum(sums, axis=0))


# block, warps, programs
READ_SHAPES = tuple(itertools.product((4096, 8192), (4, 8), (1 << 11, 1 << 13, 1 << 15)))


def ceilings(repeats, device="cuda"):
    """Read and copy bandwidth in GB/s over 4 GiB, the best of several shapes."""
    words, shapes = (1 << 30, READ_SHAPES) if device == "cuda" else (1 << 16, ((4096, 4, 4),))
    src = torch.randint(-2**31, 2**31 - 1, (words,), dtype=torch.int32, device=device)
    dst = torch.empty_like(src)
    read = {}
    for block, warps, programs in shapes:
        rounds = words // block // programs
        us = harness.median_us(lambda: read_kernel[(programs,)](src, dst, rounds, BLOCK=block, num_warps=warps), repeats,
                       device)
        read[f"block={block} warps={warps} programs={programs}"] = words * 4 / us / 1e3
    copied = words * 8 / harness.median_us(lambda: dst.copy_(src), repeats, device) / 1e3
    shape = max(read, key=read.get)
    return {"read_gbs": read[shape], "read_shape": shape, "copy_gbs": copied}


# ---- the peers' kernels, compiled by many processes before anything is timed ----


def warm_work(rows, options, peers):
    """(row, peer), one of each kernel that a peer is compiled to: a size is 1, or a multiple of 16, or neither."""
    small = [] if options.no_check else list(small_rows(rows, "cuda"))
    work = {}
    for row in small + ([] if options.check else rows):
        batch = len(row.seq_lens)
        widest = -(-max(row.seq_lens) // row.page)
        sizes = tuple((n == 1, n % 16 == 0) for n in (batch, widest))
        for peer in peers:
            if peer.compiles and peer.takes(row):
                kind = (peer.name, peer.segments(row), sizes, dataclasses.replace(row, lens=()))
                work.setdefault(kind, (row, peer))
    return list(work.values())


def warm_peers(rows, options, peers):
    """One process of many: launches its share over a pool of few pages."""
    part, parts = map(int, options.warm_peers.split("/"))
    for row, peer in warm_work(rows, options, peers)[part::parts]:
        try_once(copy.copy(peer), row.case("cuda", 1, 256, distinct=False), 0)
    return 0


# ---- report -------------------------------------------------------------------

FAMILIES = ("aiter", "vllm", "flashinfer", "flashmla", "torch")
COLUMNS = (("row", "row", "{:34}"), ("kgen_us", "kgen us", "{:9.1f}"), ("kgen_share", "of read", "{:7.1%}"),
           ("kgen_tflops", "TFLOP/s", "{:7.1f}"),
           ("aiter_us", "aiter us", "{:9.1f}"), ("vllm_us", "vllm us", "{:9.1f}"),
           ("flashinfer_us", "flashinfer", "{:10.1f}"), ("flashmla_us", "flashmla", "{:9.1f}"), ("torch_us", "torch us", "{:9.1f}"),
           ("ratio", "peer/kgen", "{:9.2f}"), ("peer_best", "best peer", "{:12}"),
           ("kgen_error", "kgen err", "{:9.1e}"), ("peer_error", "peer err", "{:9.1e}"))


def columns_of(peers):
    """Without those of families that no peer is of."""
    absent = {f"{family}_us" for family in FAMILIES} - {peer.name.split("-")[0] + "_us" for peer in peers}
    return [column for column in COLUMNS if column[0] not in absent]


def details(result):
    """Every variant and configuration, where there is more than one of a kind; a star is a peer's own choice."""
    own = result["peer_own"].split()
    return ["      " + "  ".join(f"{name}{'*' * (name in own)} {us:.1f}"
                                 for name, us in sorted(result[key].items(), key=lambda i: i[1]))
            for key in ("kgen_variants", "peer_configs") if len(result[key]) > 1]


def token_ratios(rows, results):
    """Several query tokens against one, the same row otherwise."""
    by_name = {result["row"]: result for result in results}
    of = {row: by_name[row.name] for row in rows if row.name in by_name}
    lines = []
    for row in rows:
        one = of.get(dataclasses.replace(row, tokens=1))
        if row.tokens > 1 and one and row in of:
            said = [f"{who} {of[row][key] / one[key]:.3f}" for who, key in (("kgen", "kgen_us"), ("peer", "peer_us"))
                    if of[row][key] and one[key]]
            lines.append(f"{row.name} against 1 token: " + ", ".join(said))
    return lines


def geometric_means(results):
    """Of the peers' times over kgen's."""
    lines = []
    for title, key in [("best peer", "peer_us")] + [(family, f"{family}_us") for family in FAMILIES]:
        ratios = [r[key] / r["kgen_us"] for r in results if r[key] and r["kgen_us"]]
        if ratios:
            lines.append(f"{title} / kgen: {statistics.geometric_mean(ratios):.2f} (least {min(ratios):.2f}, most "
                         f"{max(ratios):.2f}, {sum(x < 1 for x in ratios)} of {len(ratios)} below 1)")
    return lines


def is_spent(options, longest):
    """Whether a row that takes as long as the longest so far would end after the budget."""
    return options.budget and time.time() - options.started + longest > options.budget


def measure(rows, options, context, device, peers):
    """Returns how many rows gave no time of ours; in a dry run also those with a candidate that is wrong."""
    report = {"device": context.name, "emulated": device == "cpu", "torch": torch.__version__,
              "triton": triton.__version__, "seed": options.seed, **ceilings(options.repeats, device),
              "left_out": [], "rows": []}
    columns = columns_of(peers)
    print(f"{context.name}: read {report['read_gbs']:.0f} GB/s ({report['read_shape']}), "
          f"copy {report['copy_gbs']:.0f} GB/s\n{harness.heading(columns)}", flush=True)
    left = harness.time_rows(
        rows, options, report, lambda row: time_row(row, options, context, device, peers, report["read_gbs"]),
        lambda result: [harness.line_of(columns, result)] + details(result), lambda longest: is_spent(options, longest))
    report["left_out"] = [row.name for row in left]
    harness.write_files(report, options)
    print("\n".join(token_ratios(rows, report["rows"]) + geometric_means(report["rows"])))
    if left:
        print(f"the budget of {options.budget:g} s is spent; left out: {', '.join(report['left_out'])}")
    bad = [r for r in report["rows"] if r["kgen_us"] is None or options.dry_run and r["wrong"]]
    return len(rows) - len(left) - len(report["rows"]) + len(bad)


def parse(doc):
    p = harness.parser(doc, None, (5, 15))
    p.add_argument("--grid", action="store_true", help="batch by context of one kernel, 5 repeats")
    p.add_argument("--extend", action="store_true", help="rows of many query tokens")
    p.add_argument("--prefix", action="store_true", help="sequences with a prefix in common")
    p.add_argument("--uneven", action="store_true", help="sequences of unlike lengths")
    p.add_argument("--only", default="", help="regular expression over the names of rows")
    p.add_argument("--variants", default="", help="tuning keys to try beside the default: 'occ=1;waves=4,occ=2'")
    p.add_argument("--no-peer", action="store_true", help="kgen alone")
    p.add_argument("--peers", default="", help="only these: 'aiter-3d,vllm-2d-64,flashinfer'")
    p.add_argument("--torch", action="store_true", help="scaled_dot_product_attention too, for the rows it can")
    p.add_argument("--budget", type=float, metavar="SECONDS",
                   help=f"start no row that would end later than so long after the start (with --grid {GRID_SECONDS}; "
                        "0: none)")
    p.add_argument("--device", default="cuda:0", help="a kgen device; cpu:sm90 with --check")
    p.add_argument("--warm-processes", type=int, default=min(12, os.cpu_count()))
    p.add_argument("--warm-peers", default="", help=argparse.SUPPRESS)
    return p.parse_args()


def settle(options, family):
    """What was not given follows from the rest."""
    harness.settle(options, (5, 15))
    options.repeats = 1 if options.dry_run else 5 if options.grid else options.repeats
    options.no_check |= (options.grid or options.dry_run) and not options.check  # timed rows are compared anyway
    if options.budget is None:
        options.budget = GRID_SECONDS if options.grid else 0
    kind = next((kind for kind in ("grid", "extend", "prefix", "uneven") if getattr(options, kind)), "bench")
    options.tag = options.tag or f"{family}_{kind}" + "_dry" * options.dry_run
    if options.dry_run:
        options.device = "cpu:sm90"
    return options


def dry_rows(rows, options):
    """The interpreter has no products of bf16, and emulated keys take time."""
    rows = [dataclasses.replace(row, x="fp16") for row in rows]
    if not options.grid:
        return [row if row.window else dataclasses.replace(row, lens=row.lens[:2]) for row in small_rows(rows, "cpu")]
    few = dict(q_heads=16, kv_heads=2, x="fp16")
    return [Row(((batch, keys),), **few) for batch, keys in itertools.product((1, 2), (40, 100))]


def rows(options):
    if options.prefix:
        return prefix_rows()
    if options.uneven:
        return uneven_rows(options.seed)
    return map_rows() if options.grid else extend_rows() if options.extend else usual_rows()


def peers(options, module):
    if options.no_peer:
        return []
    from peers import available  # with torch
    kinds = importlib.import_module(module).kinds(options.torch)
    found, reasons = available(kinds, options.peers.split(",") if options.peers else ())
    if not options.warm_peers:
        print("peers: " + (", ".join(p.name for p in found) or "none"))
        print("".join(f"  left out: {reason}\n" for reason in reasons), end="", flush=True)
    return found


def main(family, doc, rows, dry_rows):
    """rows(options), and of these what dry_rows(rows, options) makes: the peers are those of <family>_peers.py."""
    options = settle(parse(doc), family)
    chosen = [row for row in rows(options) if re.search(options.only, row.name)]
    if options.list:
        print("\n".join(f"{row.name:36} {row.spec}" for row in chosen))
        return 0
    if options.build:
        return harness.build_specs(sorted({harness.with_tuning(r.spec, v) for r in chosen
                                           for v in harness.variants_of(options)}))
    torch.manual_seed(options.seed)
    chosen = dry_rows(chosen, options) if options.dry_run else chosen
    others = peers(options, f"{family}_peers")
    if options.warm_peers:
        return warm_peers(chosen, options, others)
    context, device = harness.open_device(options.device)
    print(f"seed {options.seed}, {context.name}", flush=True)
    if device == "cuda" and others:
        harness.precompile(sys.argv[0], options, "--warm-peers")
    failed = 0 if options.no_check else check(chosen, options, context, device, others)
    if not options.check and (device == "cuda" or options.dry_run):
        failed += measure(chosen, options, context, device, others)
    context.close()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main("attn", __doc__, rows, dry_rows))
