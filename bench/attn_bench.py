"""Times kgen's paged attention on an NVIDIA GPU, beside AITER's Triton unified attention.

Both run in one process over the same tensors: a CUDA graph holds N launches, each with its own
set of pages (random permutations over a pool of gigabytes), so no launch finds its keys in the
L2 cache; replays of all candidates alternate. See docs/bench.md.

  --build     compile the kernels of the grid into the cache; needs no GPU and no torch
  --check     only compare small cases with a float32 reference (also --device cpu:sm90)
"""
import argparse
import csv
import dataclasses
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import kgen_ctypes as kg

try:
    import torch
    import triton
    import triton.language as tl
except ImportError:  # --build does without
    torch = triton = None

ROOT = kg.ROOT
OUT = ROOT / "out"
CACHE = OUT / "cache"
PEERS = ROOT / ".peers"
K = 1024
COLD_BYTES = 1 << 30
POOL_BYTES = 24 << 30
POOL_PAGES = 1 << 16
MIN_LAUNCHES, MAX_LAUNCHES = 4, 64
MIN_TIMED_US = 1000


# ---- the grid ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Row:
    lens: tuple  # (count, keys), ...
    tokens: int = 1
    q_heads: int = 64
    kv_heads: int = 8
    dim: int = 128
    page: int = 16
    kv: str = "bf16"
    window: int = 0

    @property
    def name(self):
        lens = "+".join(f"{n}x{k // K}k" if k >= K else f"{n}x{k}" for n, k in self.lens)
        extra = (f" w{self.window}" if self.window else "") + (f" t{self.tokens}" if self.tokens > 1 else "")
        return f"{self.kv} h{self.q_heads}/{self.kv_heads} d{self.dim} p{self.page}{extra} {lens}"

    @property
    def spec(self):
        phase, kv = ("verify" if self.tokens > 1 else "decode"), {"fp8": "e4m3fn"}.get(self.kv, self.kv)
        tokens = f",t={self.tokens}" if self.tokens > 1 else ""
        window = f",window={self.window}" if self.window else ""
        return (f"attn:phase={phase},q=bf16,kv={kv},d={self.dim},g={self.group}{tokens}"
                f",page={self.page},layout=nhd{window}")

    @property
    def group(self):
        return self.q_heads // self.kv_heads

    @property
    def seq_lens(self):
        return [keys for count, keys in self.lens for _ in range(count)]

    @property
    def kv_bytes(self):
        """What one launch has to read: keys in sight, K and V."""
        sight = self.window + self.tokens - 1 if self.window else max(self.seq_lens)
        keys = sum(min(n, sight) for n in self.seq_lens)
        return 2 * keys * self.kv_heads * self.dim * (1 if self.kv == "fp8" else 2)


def grid():
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


def with_tuning(spec, variant):
    return f"{spec},{variant}" if variant else spec


def variants_of(options):
    return [""] + [v.strip() for v in options.variants.split(";") if v.strip()]


# ---- building ---------------------------------------------------------------


def kgen_command():
    named = os.environ.get("KGEN")
    places = [named] if named else [OUT / "bin/kgen", ROOT / "build/release/bin/kgen"]
    for place in places:
        if os.path.exists(place):
            return str(place)
    raise kg.KgenError("kgen: not in out/bin or build/release/bin; name it with KGEN")


def build(rows, options):
    return build_specs(sorted({with_tuning(r.spec, v) for r in rows for v in variants_of(options)}))


def build_specs(specs):
    """All at once; what fails is tried again alone, spills allowed, and named."""
    command = [kgen_command(), "build", "--arch", "sm_90", "--cache-dir", str(CACHE)]
    library = os.path.dirname(kg.find_library())
    env = dict(os.environ, LD_LIBRARY_PATH=f"{library}:{os.environ.get('LD_LIBRARY_PATH', '')}")
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


# ---- data and reference -----------------------------------------------------


class Case:
    """Tensors of a row: one pool of pages, `sets` block tables without a page in common."""

    def __init__(self, row, device, sets, pool_pages, distinct=True):
        self.row, self.sets = row, sets
        lens = row.seq_lens
        pages = torch.tensor([-(-n // row.page) for n in lens])
        need = int(pages.sum()) * sets if distinct else 0
        kv_type = torch.float8_e4m3fn if row.kv == "fp8" else torch.bfloat16
        shape = (max(need, pool_pages), row.page, row.kv_heads, row.dim)
        self.k, self.v = (random_tensor(shape, kv_type, device) for _ in "kv")
        self.table = self.make_table(shape[0], pages, distinct).to(device)
        tokens = len(lens) * row.tokens
        self.q = random_tensor((tokens, row.q_heads, row.dim), torch.bfloat16, device)
        self.out = torch.full_like(self.q, float("nan"))
        self.lens = torch.tensor(lens, dtype=torch.int32, device=device)
        self.cu = torch.arange(0, tokens + 1, row.tokens, dtype=torch.int32, device=device)
        self.k_descale, self.v_descale = (
            torch.tensor([x], device=device) if row.kv == "fp8" else None for x in (0.8, 1.3))
        self.scale = row.dim ** -0.5

    def make_table(self, pool_pages, pages, distinct):
        """[set][S][pages]; entries past a sequence's end name some page of the pool."""
        widest = int(pages.max())
        table = torch.randint(pool_pages, (self.sets, len(pages), widest), dtype=torch.int32)
        if distinct:
            used = torch.arange(widest)[None, :] < pages[:, None]
            order = torch.randperm(pool_pages, dtype=torch.int32)[:self.sets * int(pages.sum())]
            table[:, used] = order.view(self.sets, -1)
        return table

    def gather(self, pool, index, seq, head):
        row, length = self.row, int(self.lens[seq])
        pages = self.table[index, seq, :-(-length // row.page)].long()
        chosen = pool.view(torch.uint8)[pages, :, head] if row.kv == "fp8" else pool[pages, :, head]
        return chosen.reshape(-1, row.dim)[:length].view(pool.dtype).float()

    def reference(self, index, seq, head):
        """[t][G][D] of one sequence and KV head, float32."""
        row, length = self.row, int(self.lens[seq])
        q = self.q[seq * row.tokens:(seq + 1) * row.tokens, head * row.group:(head + 1) * row.group].float()
        k, v = (self.gather(pool, index, seq, head) for pool in (self.k, self.v))
        descales = (float(self.k_descale), float(self.v_descale)) if row.kv == "fp8" else (1.0, 1.0)
        scores = torch.einsum("tgd,nd->tgn", q, k) * (self.scale * descales[0])
        key = torch.arange(length, device=q.device)
        distance = (length - row.tokens + torch.arange(row.tokens, device=q.device))[:, None] - key[None, :]
        hidden = (distance < 0) | (distance >= row.window if row.window else False)
        scores.masked_fill_(hidden[:, None, :], float("-inf"))
        return torch.einsum("tgn,nd->tgd", scores.softmax(-1), v) * descales[1]

    def error(self, index):
        """(largest error, largest reference value) over some sequences and heads; NaN counts."""
        row, worst, largest = self.row, 0.0, 0.0
        seqs = {0, len(row.seq_lens) // 2, len(row.seq_lens) - 1}
        for seq, head in itertools.product(seqs, {0, row.kv_heads - 1}):
            want = self.reference(index, seq, head)
            got = self.out[seq * row.tokens:(seq + 1) * row.tokens,
                           head * row.group:(head + 1) * row.group].float()
            difference = (got - want).abs().max().item()
            worst = max(worst, float("inf") if difference != difference else difference)
            largest = max(largest, want.abs().max().item())
        return worst, largest


def random_tensor(shape, dtype, device):
    if dtype != torch.float8_e4m3fn:
        return torch.randn(shape, dtype=dtype, device=device)
    out = torch.empty(shape, dtype=dtype, device=device)
    for part in out.split(8192):  # the wider values take memory only by parts
        part.copy_(torch.randn(part.shape, dtype=torch.bfloat16, device=device))
    return out


def case_sets(row):
    """N launches with N sets of pages: a gigabyte of keys in sight, within the pool's size."""
    per_set = sum(row.seq_lens) * 2 * row.kv_heads * row.dim * (1 if row.kv == "fp8" else 2)
    sets = min(MAX_LAUNCHES, max(MIN_LAUNCHES, -(-COLD_BYTES // row.kv_bytes)))
    return min(sets, max(MIN_LAUNCHES, POOL_BYTES // per_set))


# ---- candidates: name, and run(case, set) in torch's current stream -----------


def current_stream(device):
    return torch.cuda.current_stream().cuda_stream if device == "cuda" else 0


class Kgen:
    def __init__(self, context, row, variant, device):
        self.name = f"kgen {variant}" if variant else "kgen"
        self.context, self.device, self.args, self.held = context, device, [], None
        self.kernel = context.prepare(with_tuning(row.spec, variant))

    def bind(self, case):
        self.args = [self.arguments(case, index) for index in range(case.sets)]
        size = self.context.workspace_bytes(self.kernel, self.args[0])
        self.held = torch.empty(size + 256, dtype=torch.uint8, device=self.device)
        memory = -(-self.held.data_ptr() // 256) * 256
        self.context.workspace_init(memory, size, current_stream(self.device))
        for args in self.args:
            args.workspace, args.workspace_bytes = memory, size

    def arguments(self, case, index):
        args = kg.Args(family=kg.ATTN)
        attn = args.attn  # a view of the union
        attn.softmax_scale = case.scale
        attn.q, attn.out = kg.tensor(case.q), kg.tensor(case.out)
        attn.k, attn.v = kg.tensor(case.k, "nhd"), kg.tensor(case.v, "nhd")
        attn.block_table, attn.seq_lens = kg.tensor(case.table[index]), kg.tensor(case.lens)
        if case.row.tokens > 1:
            attn.cu_seqlens_q = kg.tensor(case.cu)
        if case.k_descale is not None:
            attn.k_descale, attn.v_descale = kg.tensor(case.k_descale), kg.tensor(case.v_descale)
        return args

    def run(self, case, index):
        self.context.launch(self.kernel, self.args[index], current_stream(self.device))


class KnownOptions:
    """A Triton kernel without the AMD-only launch options that other backends refuse."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid_size):
        launch, names = self.kernel[grid_size], self.kernel.arg_names

        def run(**options):
            if "waves_per_eu" not in names:
                options.pop("waves_per_eu", None)
            return launch(**options)
        return run


# The kernel path and what replaces the peer's own choice. The peer was tuned for another vendor:
# the `64` rows give it the tiles, warps and stages that suit this one.
PEER_CONFIGS = {
    "2d": (True, {}),
    "3d": (False, {}),
    "2d-64": (True, {"TILE_SIZE": 64, "num_warps": 4, "num_stages": 3}),
    "3d-64": (False, {"TILE_SIZE": 64, "num_warps": 4, "num_stages": 3}),
}


class Peer:
    """AITER's unified attention from .peers/, on a path of our choice."""
    module = own = None

    def __init__(self, config):
        self.name, self.two, self.override = config, *PEER_CONFIGS[config]
        if Peer.module is None:
            self.load()

    @staticmethod
    def load():
        sys.path.insert(0, str(PEERS))
        import aiter.ops.triton.attention.unified_attention as module
        for name in ("kernel_unified_attention_2d", "kernel_unified_attention_3d", "reduce_segments"):
            setattr(module, name, KnownOptions(getattr(module, name)))
        Peer.own = {n: getattr(module, n) for n in ("use_2d_kernel", "select_2d_config", "select_3d_config")}
        Peer.module = module

    def override_for(self, dim):
        stages = {"num_stages": 2} if self.override and dim > 128 else {}
        return {**self.override, **stages}

    def select_2d(self, *args, **named):
        config = Peer.own["select_2d_config"](*args, **named)
        return {**config, **self.override_for(args[1])}

    def select_3d(self, dim, page, longest, *rest):
        attention, reduction = Peer.own["select_3d_config"](dim, page, longest, *rest)
        attention = {**attention, **self.override_for(dim)}
        most = triton.next_power_of_2(-(-longest // attention["TILE_SIZE"]))
        attention["NUM_SEGMENTS_PER_SEQ"] = min(most, attention["NUM_SEGMENTS_PER_SEQ"])
        same = {n: attention[n] for n in ("TILE_SIZE", "NUM_SEGMENTS_PER_SEQ")}
        return attention, {**reduction, **same}

    def run(self, case, index):
        row, module = case.row, Peer.module
        module.use_2d_kernel = self.choose_path
        module.select_2d_config, module.select_3d_config = self.select_2d, self.select_3d
        module.unified_attention(
            q=case.q, k=case.k, v=case.v, out=case.out, cu_seqlens_q=case.cu, max_seqlen_q=row.tokens,
            seqused_k=case.lens, max_seqlen_k=max(row.seq_lens), softmax_scale=case.scale, causal=True,
            window_size=(row.window - 1, 0) if row.window else (-1, -1), block_table=case.table[index],
            softcap=0, q_descale=None, k_descale=case.k_descale, v_descale=case.v_descale)

    def choose_path(self, *args):
        self.own_path_is_2d = Peer.own["use_2d_kernel"](*args)
        return self.two

    def bind(self, case):
        pass

    def is_own_choice(self):
        return not self.override and self.own_path_is_2d == self.two


def peer_configs(row, options):
    """With a window the 3D kernel reads every key: left out."""
    names = [] if options.no_peer else options.peer_configs.split(",")
    return [n for n in names if PEER_CONFIGS[n][0] or not row.window]


def candidates(row, options, context, device):
    made = []
    for variant in variants_of(options):
        try:
            made.append(Kgen(context, row, variant, device))
        except kg.KgenError as error:
            print(f"  {row.name}: kgen {variant}: {error}", flush=True)
    return made + [Peer(name) for name in peer_configs(row, options)]


def try_once(candidate, case, index=0):
    """One launch and its error; None where the candidate cannot run the case."""
    case.out.fill_(float("nan"))
    try:
        candidate.bind(case)
        candidate.run(case, index)
        if isinstance(candidate, Kgen):
            candidate.context.sync(current_stream(candidate.device))
    except Exception as error:  # a peer may fail in any way; the others go on
        print(f"  {case.row.name}: {candidate.name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return None
    return case.error(index)


# ---- correctness --------------------------------------------------------------


def small_row(row, device):
    """The same kernel over three short sequences."""
    keys = (row.tokens, row.page + 7, 150 if device == "cpu" else 2500)
    return dataclasses.replace(row, lens=tuple((1, n) for n in keys), q_heads=2 * row.group, kv_heads=2)


def small_rows(rows, device):
    """One for each kernel."""
    return {row.spec: small_row(row, device) for row in rows}.values()


def is_right(result):
    """Products of 16-bit numbers: 1/64 of the largest value is allowed."""
    return result is not None and result[0] <= result[1] / 64


def check(rows, options, context, device):
    """Returns how many kernels of ours failed."""
    failed = 0
    for row in small_rows(rows, device):
        case = Case(row, device, 2, 100)
        for candidate in candidates(row, options, context, device):
            result = try_once(candidate, case, 1)
            good = is_right(result)
            failed += not good and isinstance(candidate, Kgen)
            said = f"error {result[0]:.2g} of {result[1]:.2g}" if result else "did not run"
            print(f"check {'ok  ' if good else 'FAIL'} {candidate.name:12} {said:24} {row.spec}", flush=True)
    return failed


# ---- time ---------------------------------------------------------------------


def capture(candidate, case):
    """All sets in one graph, after a first pass outside of it."""
    for index in range(case.sets):
        candidate.run(case, index)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(case.sets):
            candidate.run(case, index)
    return graph


def replay_us(graph, count):
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


def time_row(row, options, context, read_gbs):
    sets = case_sets(row)
    case = Case(row, "cuda", sets, POOL_PAGES)
    graphs, errors, own = {}, {}, None
    for candidate in candidates(row, options, context, "cuda"):
        result = try_once(candidate, case)
        if not is_right(result):
            print(f"  {row.name}: {candidate.name}: WRONG, left out: {result}", flush=True)
            continue
        errors[candidate.name] = result
        graphs[candidate.name] = (capture(candidate, case), candidate)
        if isinstance(candidate, Peer) and candidate.is_own_choice():
            own = candidate.name
    times = interleave({n: g for n, (g, _) in graphs.items()}, sets, options.repeats)
    return summary(row, sets, times, errors, own, read_gbs)


def summary(row, sets, times, errors, own, read_gbs):
    median = {n: statistics.median(t) for n, t in times.items()}
    kgen = {n: t for n, t in median.items() if n.startswith("kgen")}
    peer = {n: t for n, t in median.items() if not n.startswith("kgen")}
    best = min(peer, key=peer.get) if peer else None
    base = kgen.get("kgen")
    return {
        "row": row.name, "spec": row.spec, "launches": sets, "kv_mb": row.kv_bytes / 1e6,
        "kgen_us": base, "kgen_min_us": min(times["kgen"]) if base else None,
        "kgen_share": row.kv_bytes / base / 1e3 / read_gbs if base else None,
        "kgen_error": errors["kgen"][0] if base else None,
        "kgen_variants": kgen, "peer_us": peer.get(best), "peer_min_us": min(times[best]) if best else None,
        "peer_best": best, "peer_own": own, "peer_error": errors[best][0] if best else None,
        "peer_configs": peer, "ratio": peer[best] / base if best and base else None,
        "largest_value": max((e[1] for e in errors.values()), default=None),
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


def ceilings(repeats):
    """Read and copy bandwidth in GB/s over 4 GiB, the best of several shapes."""
    words = 1 << 30
    src = torch.randint(-2**31, 2**31 - 1, (words,), dtype=torch.int32, device="cuda")
    dst = torch.empty_like(src)
    read = {}
    for block, warps, programs in itertools.product((4096, 8192), (4, 8), (1 << 11, 1 << 13, 1 << 15)):
        rounds = words // block // programs
        us = median_us(lambda: read_kernel[(programs,)](src, dst, rounds, BLOCK=block, num_warps=warps), repeats)
        read[f"block={block} warps={warps} programs={programs}"] = words * 4 / us / 1e3
    copy = words * 8 / median_us(lambda: dst.copy_(src), repeats) / 1e3
    shape = max(read, key=read.get)
    return {"read_gbs": read[shape], "read_shape": shape, "copy_gbs": copy}


def median_us(call, repeats):
    call()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


# ---- the peer's kernels, compiled by many processes before anything is timed ----


def warm_peer(rows, options):
    """One process of many: launches its share of the grid over a pool of few pages."""
    part, parts = map(int, options.warm_peer.split("/"))
    small = [] if options.no_check else list(small_rows(rows, "cuda"))
    work = [(r, n) for r in small + ([] if options.check else rows) for n in peer_configs(r, options)]
    for row, name in work[part::parts]:
        try_once(Peer(name), Case(row, "cuda", 1, 256, distinct=False))
    return 0


def precompile(options):
    started = time.time()
    parts = options.warm_processes
    command = [sys.executable, __file__] + options.raw + ["--warm-peer"]
    running = [subprocess.Popen(command + [f"{i}/{parts}"], stdout=subprocess.DEVNULL) for i in range(parts)]
    codes = [process.wait() for process in running]
    print(f"peer kernels compiled by {parts} processes in {time.time() - started:.0f} s"
          + (f"; {sum(map(bool, codes))} of them failed" if any(codes) else ""), flush=True)


# ---- report -------------------------------------------------------------------

COLUMNS = (("row", "row", "{:34}"), ("kgen_us", "kgen us", "{:9.1f}"), ("kgen_share", "of read", "{:7.1%}"),
           ("peer_us", "peer us", "{:9.1f}"), ("ratio", "peer/kgen", "{:9.2f}"),
           ("peer_best", "best peer", "{:9}"), ("peer_own", "its own", "{:7}"),
           ("kgen_error", "kgen err", "{:9.1e}"), ("peer_error", "peer err", "{:9.1e}"))


def width(form):
    return int(re.search(r"\d+", form).group())


def heading():
    return "  ".join(f"{title:{'<' if key == 'row' else '>'}{width(form)}}" for key, title, form in COLUMNS)


def line_of(result):
    cells = []
    for key, _, form in COLUMNS:
        value = result[key]
        cells.append(f"{'-':>{width(form)}}" if value is None
                     else form.format(value) if not isinstance(value, str) or key == "row"
                     else f"{value:>{width(form)}}")
    return "  ".join(cells)


def details(result):
    """Every variant and configuration, where there is more than one of a kind."""
    return ["      " + "  ".join(f"{name} {us:.1f}" for name, us in sorted(result[key].items(), key=lambda i: i[1]))
            for key in ("kgen_variants", "peer_configs") if len(result[key]) > 1]


def token_ratios(rows, results):
    """Several query tokens against one, the same row otherwise."""
    of = {row: result for row, result in zip(rows, results)}
    lines = []
    for row in rows:
        one = of.get(dataclasses.replace(row, tokens=1))
        if row.tokens > 1 and one:
            said = [f"{who} {of[row][key] / one[key]:.3f}" for who, key in (("kgen", "kgen_us"), ("peer", "peer_us"))
                    if of[row][key] and one[key]]
            lines.append(f"{row.name} against 1 token: " + ", ".join(said))
    return lines


def write_files(report, options):
    folder = pathlib.Path(os.environ.get("OUT", OUT))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{options.tag}.json").write_text(json.dumps(report, indent=1))
    keys = [k for k, v in report["rows"][0].items() if not isinstance(v, dict)] if report["rows"] else []
    with open(folder / f"{options.tag}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, keys, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(report["rows"])


def measure(rows, options, context):
    report = {"device": context.name, "torch": torch.__version__, "triton": triton.__version__,
              **ceilings(options.repeats), "rows": []}
    print(f"{context.name}: read {report['read_gbs']:.0f} GB/s ({report['read_shape']}), "
          f"copy {report['copy_gbs']:.0f} GB/s\n{heading()}", flush=True)
    done = []
    for row in rows:
        try:
            result = time_row(row, options, context, report["read_gbs"])
        except Exception as error:  # what was measured so far is worth having
            print(f"{row.name}: {type(error).__name__}: {error}", flush=True)
            continue
        torch.cuda.empty_cache()
        done.append(row)
        report["rows"].append(result)
        print("\n".join([line_of(result)] + details(result)), flush=True)
        write_files(report, options)
    print("\n".join(token_ratios(done, report["rows"])))


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", action="store_true", help="compile the grid's kernels into out/cache")
    p.add_argument("--check", action="store_true", help="small cases only, no timing")
    p.add_argument("--no-check", action="store_true", help="timing only")
    p.add_argument("--list", action="store_true", help="print the grid")
    p.add_argument("--only", default="", help="regular expression over the names of rows")
    p.add_argument("--variants", default="", help="tuning keys to try beside the default: 'occ=1;waves=4,occ=2'")
    p.add_argument("--no-peer", action="store_true", help="kgen alone")
    p.add_argument("--peer-configs", default=",".join(PEER_CONFIGS))
    p.add_argument("--quick", action="store_true", help="5 repeats instead of 15")
    p.add_argument("--device", default="cuda:0", help="a kgen device; cpu:sm90 with --check")
    p.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    p.add_argument("--tag", default="attn_bench", help="name of the JSON and CSV files")
    p.add_argument("--warm-processes", type=int, default=min(12, os.cpu_count()))
    p.add_argument("--warm-peer", default="", help=argparse.SUPPRESS)
    options = p.parse_args()
    options.raw = sys.argv[1:]
    options.repeats = 5 if options.quick else 15
    return options


def main():
    options = parse()
    rows = [row for row in grid() if re.search(options.only, row.name)]
    if options.list:
        print("\n".join(f"{row.name:36} {row.spec}" for row in rows))
        return 0
    if options.build:
        return build(rows, options)
    torch.manual_seed(options.seed)
    if options.warm_peer:
        return warm_peer(rows, options)
    device = "cpu" if options.device.startswith("cpu") else "cuda"
    if device == "cuda":
        torch.cuda.init()
        torch.empty(1, device="cuda")  # the primary context, which kgen then shares
    context = kg.Context(options.device, CACHE, kg.OFFLINE if device == "cuda" else kg.AUTO)
    print(f"seed {options.seed}, {context.name}", flush=True)
    if device == "cuda" and not options.no_peer:
        precompile(options)
    failed = 0 if options.no_check else check(rows, options, context, device)
    if not options.check and device == "cuda":
        measure(rows, options, context)
    context.close()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
