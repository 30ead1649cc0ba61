"""Times kgen's kv_write and kv_gather on an NVIDIA GPU, beside Triton kernels of vLLM and AITER, torch,
and a plain copy of as many bytes.

All of them work on the same tensors in one process: a CUDA graph holds N launches, each with rows and
pages of its own, at random places of a pool; replays of all candidates alternate. See docs/bench.md.

  --build     compile the kernels of the grid into the cache; needs no GPU and no torch
  --check     only compare small cases
  --dry-run   the same without a GPU: ours on cpu:sm90, the peers' Triton kernels interpreted
"""
import dataclasses
import re
import statistics
import sys

import harness
import kgen_ctypes as kg

try:
    import torch
    import kv_peers
except ImportError:  # --build does without
    torch = None

COLD_BYTES = 1 << 30  # that all launches of a graph read and write: 20 times the L2 cache
POOL_BYTES = 1 << 30
MIN_LAUNCHES, MAX_LAUNCHES = 4, 16384  # of one token, 16384 launches touch 100 MB or more
POSITIONS = 4096
SEQUENCE = 1024  # tokens of a sequence that is gathered
DECODE = 64      # up to so many tokens are one a sequence, each in a page of its own
POISON = 0x25    # of a byte; no type takes the number for NaN


# ---- the grid ----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Row:
    op: str      # write, rope (rotate keys and queries, write) or gather
    layout: str  # nhd or shuffle
    kv: str      # copy, fp8 or i8
    tokens: int
    scale: str = "head"  # or token: of 8-bit caches
    heads: int = 8
    q_heads: int = 64
    dim: int = 128
    page: int = 16
    x: str = "bf16"

    @property
    def name(self):
        return f"{self.op} {self.layout} {self.kv}{' token' if self.scale == 'token' else ''} t{self.tokens}"

    @property
    def spec(self):
        kv = self.x if self.kv == "copy" else self.kv
        tail = f"kv={kv},d={self.dim},page={self.page},layout={self.layout}"
        if self.op == "gather":
            return f"kv_gather:o={self.x},{tail}"
        scale = ",scale=token" if self.scale == "token" else ""
        rope = ",rope=neox,rq=1" if self.op == "rope" else ""
        return f"kv_write:x={self.x},{tail}{scale}{rope}"

    @property
    def cache_format(self):
        return self.layout.upper()

    @property
    def element_bytes(self):
        return 2 if self.kv == "copy" else 1

    @property
    def page_bytes(self):
        """K and V."""
        return 2 * self.page * self.heads * self.dim * self.element_bytes

    @property
    def set_pages(self):
        spread = self.tokens <= DECODE and self.op != "gather"
        return self.tokens if spread else -(-self.tokens // self.page)

    @property
    def bytes(self):
        """What one launch has to read and write; slots, tables and cosines are left out."""
        rows = 2 * self.tokens * self.heads
        moved = rows * self.dim * (2 + self.element_bytes) + (4 * rows if self.scale == "token" else 0)
        return moved + (4 * self.tokens * self.q_heads * self.dim if self.op == "rope" else 0)


TOKENS = (1, 64, 512, 2048, 8192, 32768)
KINDS = ([("write", layout, kv) for layout in ("nhd", "shuffle") for kv in ("copy", "fp8")]
         + [("write", "nhd", kv, "token") for kv in ("fp8", "i8")]
         + [(op, layout, kv) for op in ("rope", "gather") for layout in ("nhd", "shuffle")
            for kv in ("copy", "fp8")])


def all_rows():
    return [Row(op, layout, kv, tokens, *scale) for op, layout, kv, *scale in KINDS for tokens in TOKENS]


def specs_of(rows):
    return sorted({r.spec for r in rows})


def case_sets(row):
    """Launches of a graph: so many that no row and no page is found in the cache."""
    return min(MAX_LAUNCHES, max(MIN_LAUNCHES, -(-COLD_BYTES // row.bytes)))


# ---- data --------------------------------------------------------------------


def float_type(row):
    return torch.bfloat16 if row.x == "bf16" else torch.float16


def cache_type(row):
    return {"copy": float_type(row), "fp8": torch.float8_e4m3fn, "i8": torch.int8}[row.kv]


def words(t):
    """The same memory as integers, for bit-exact comparison and for the operations torch lacks."""
    return t.view(torch.int16 if t.element_size() == 2 else torch.uint8)


def fill_random(t):
    for part in t.view(-1).split(1 << 26):  # wider values take memory only by parts
        part.copy_(torch.randn(part.shape, dtype=torch.float32, device=t.device))


class Case:
    """Tensors of a row. Rows of keys and values are inputs of a write and outputs of a gather."""

    def __init__(self, row, device, sets, pool_bytes):
        self.row, self.device, self.sets = row, device, sets
        self.pool_pages = max(row.set_pages * sets, pool_bytes // row.page_bytes) + 1
        self.make_caches()
        shape = (sets, row.tokens, row.heads, row.dim)
        self.k, self.v = (torch.empty(shape, dtype=float_type(row), device=device) for _ in "kv")
        for t in (self.k_cache, self.v_cache) if row.op == "gather" else (self.k, self.v):
            fill_random(t)
        self.make_places()
        if row.op == "rope":
            self.make_rope()
        if row.op == "gather":
            self.make_sequences()

    def make_caches(self):
        row, pages, kind = self.row, self.pool_pages, cache_type(self.row)
        x = 16 // row.element_bytes
        shapes = {"nhd": ((pages, row.page, row.heads, row.dim),) * 2,
                  "shuffle": ((pages, row.heads, row.dim // x, row.page, x),
                              (pages, row.heads, row.page // x, row.dim, x))}[row.layout]
        self.k_cache, self.v_cache = (torch.empty(s, dtype=kind, device=self.device) for s in shapes)
        self.k_scale = self.v_scale = None
        if row.kv != "copy":
            self.k_scale, self.v_scale = (self.make_scale(value) for value in (0.043, 0.029))

    def make_scale(self, value):
        if self.row.scale == "token":
            return torch.empty((self.pool_pages, self.row.page, self.row.heads), device=self.device)
        return torch.tensor([value], device=self.device)

    def make_places(self):
        """Pages at random places; the tokens of a prompt lie one after another."""
        row, per_set = self.row, self.row.set_pages
        self.pages = torch.randperm(self.pool_pages)[:self.sets * per_set].view(self.sets, per_set)
        if per_set == row.tokens and row.op != "gather":
            slots = self.pages * row.page + torch.randint(row.page, self.pages.shape)
        else:
            slots = (self.pages[:, :, None] * row.page + torch.arange(row.page)).flatten(1)[:, :row.tokens]
        self.slots = slots.contiguous().to(self.device)
        self.page_of, self.place_of = self.slots // row.page, self.slots % row.page

    def make_rope(self):
        row = self.row
        angles = torch.rand((POSITIONS, row.dim // 2), device=self.device) * 6.3
        self.cos, self.sin = angles.cos(), angles.sin()
        self.positions = torch.randint(POSITIONS, self.slots.shape, device=self.device)
        self.q = torch.empty((self.sets, row.tokens, row.q_heads, row.dim), dtype=float_type(row), device=self.device)
        self.q_out = torch.empty_like(self.q)
        fill_random(self.q)

    def make_sequences(self):
        row, device = self.row, self.device
        count = max(1, row.tokens // SEQUENCE)
        each = row.tokens // count
        self.table = self.pages.view(self.sets, count, -1).to(torch.int32).to(device)
        self.lens = torch.full((count,), each, dtype=torch.int32, device=device)
        self.ends = torch.arange(0, row.tokens + 1, each, dtype=torch.int32, device=device)
        self.starts = torch.zeros_like(self.lens)
        self.sequence_of = torch.arange(count, dtype=torch.int32, device=device).repeat_interleave(each)

    def pages_view(self):
        """Pages as [page][Hkv][D], which is how vLLM hands shuffled ones on."""
        row = self.row
        return (t.view(self.pool_pages, row.page, row.heads, row.dim) for t in (self.k_cache, self.v_cache))

    def outputs(self):
        if self.row.op == "gather":
            return {"k": self.k, "v": self.v}
        out = {"k_cache": self.k_cache, "v_cache": self.v_cache}
        if self.row.scale == "token":
            out |= {"k_scale": self.k_scale, "v_scale": self.v_scale}
        return out | ({"q_out": self.q_out} if self.row.op == "rope" else {})

    def poison(self):
        for t in self.outputs().values():
            t.view(torch.uint8).fill_(POISON)


# ---- ours ----------------------------------------------------------------------


class Kgen:
    name, exact = "kgen", True

    def __init__(self, context, row):
        self.context, self.kernel = context, context.prepare(row.spec)

    def bind(self, case):
        fill = self.gather if case.row.op == "gather" else self.write
        self.args = [fill(case, index) for index in range(case.sets)]
        if self.context.workspace_bytes(self.kernel, self.args[0]):
            raise kg.KgenError("kv kernels want a workspace")

    @staticmethod
    def tensors(case, names):
        return {name: kg.tensor(t) for name, t in names.items() if t is not None} | {
            n: kg.tensor(getattr(case, n), case.row.layout) for n in ("k_cache", "v_cache")}

    def write(self, case, index):
        args, row = kg.Args("kv_write"), case.row
        given = {"k": case.k[index], "v": case.v[index], "slots": case.slots[index]}
        if row.op == "rope":
            given |= {"positions": case.positions[index], "cos": case.cos, "sin": case.sin,
                      "q": case.q[index], "q_out": case.q_out[index]}
        for name, t in self.tensors(case, given).items():
            setattr(args.part, name, t)
        for name in ("k_scale", "v_scale") if row.kv != "copy" else ():
            setattr(args.part, name, kg.tensor(getattr(case, name), "nhd" if row.scale == "token" else "none"))
        return args

    def gather(self, case, index):
        args = kg.Args("kv_gather")
        given = {"k": case.k[index], "v": case.v[index], "block_table": case.table[index], "cu_seqlens": case.ends,
                 "seq_lens": case.lens, "k_descale": case.k_scale, "v_descale": case.v_scale}
        for name, t in self.tensors(case, given).items():
            setattr(args.part, name, t)
        return args

    def run(self, case, index):
        self.context.launch(self.kernel, self.args[index], harness.current_stream(case.device))

    def finish(self, case):
        self.context.sync(harness.current_stream(case.device))


# ---- torch -----------------------------------------------------------------------


def rotate(x, cos, sin):
    """float32, as an engine without a kernel for it would."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


def rotate_exactly(x, cos, sin):
    """What kv_write promises: fma(a, cos, -(b sin)), fma(b, cos, a sin); sums and products in double."""
    a, b = x.float().chunk(2, dim=-1)
    wide = cos.double()
    return torch.cat(((a * wide - (b * sin).double()).float(), (b * wide + (a * sin).double()).float()),
                     dim=-1).to(x.dtype)


class Torch:
    """The same result in as few operations as we found. Which page and which place a slot is, and the slots
    of the tokens that are gathered, are computed before."""
    name, exact, turn = "torch", False, staticmethod(rotate)

    def bind(self, case):
        pass

    def finish(self, case):
        pass

    def run(self, case, index):
        if case.row.op == "gather":
            self.gather(case, index)
            return
        k = case.k[index]
        if case.row.op == "rope":
            cos, sin = (t[case.positions[index]][:, None, :] for t in (case.cos, case.sin))
            k = self.turn(k, cos, sin)
            case.q_out[index] = self.turn(case.q[index], cos, sin)
        self.store(case, index, case.k_cache, self.quantised(case, index, k, case.k_scale))
        self.store(case, index, case.v_cache, self.quantised(case, index, case.v[index], case.v_scale), True)

    @staticmethod
    def quantised(case, index, x, scale):
        """Numbers are too small to overflow: nothing is clamped."""
        row = case.row
        if row.kv == "copy":
            return x
        wide = x.float()
        if row.scale == "token":
            most = 127 if row.kv == "i8" else 448
            mine = (x.abs().amax(-1).float() / torch.full((), most, dtype=torch.float32, device=x.device)).clamp_(min=1e-6)
            scale.view(-1, row.heads)[case.slots[index]] = mine
            scale = mine[..., None]
        wide = wide / scale
        return (wide.round_() if row.kv == "i8" else wide).to(cache_type(row))

    @staticmethod
    def store(case, index, cache, codes, is_v=False):
        row, page, place = case.row, case.page_of[index], case.place_of[index]
        cache, codes = words(cache), words(codes)
        x = 16 // row.element_bytes
        if row.layout == "nhd":
            cache.view(-1, row.heads * row.dim).index_copy_(0, case.slots[index], codes.flatten(1))
        elif is_v:
            cache.permute(0, 2, 4, 1, 3)[page, place // x, place % x] = codes
        else:
            cache.permute(0, 3, 1, 2, 4)[page, place] = codes.view(*codes.shape[:2], -1, x)

    @staticmethod
    def fetch(case, index, cache, is_v=False):
        row, page, place = case.row, case.page_of[index], case.place_of[index]
        cache, x = words(cache), 16 // row.element_bytes
        if row.layout == "nhd":
            return torch.index_select(cache.view(-1, row.heads, row.dim), 0, case.slots[index])
        if is_v:
            return cache.permute(0, 2, 4, 1, 3)[page, place // x, place % x]
        return cache.permute(0, 3, 1, 2, 4)[page, place].flatten(2)

    def gather(self, case, index):
        row = case.row
        for cache, scale, out, is_v in ((case.k_cache, case.k_scale, case.k[index], False),
                                        (case.v_cache, case.v_scale, case.v[index], True)):
            if row.kv == "copy" and row.layout == "nhd":
                torch.index_select(cache.view(-1, row.heads, row.dim), 0, case.slots[index], out=out)
                continue
            codes = self.fetch(case, index, cache, is_v).view(cache.dtype)
            out.copy_(codes if row.kv == "copy" else codes.float() * scale)


class Exact(Torch):
    """The reference: bit for bit what the definitions in include/kgen/kv_*_args.h say."""
    name, turn = "reference", staticmethod(rotate_exactly)


class Copy:
    """The yardstick: as many bytes read and written, half each, from place to place."""
    name = "copy"

    def bind(self, case):
        half = -(-case.row.bytes // 32) * 4
        self.src = torch.zeros((case.sets, half), dtype=torch.int32, device=case.device)
        self.dst = torch.empty_like(self.src)

    def run(self, case, index):
        self.dst[index].copy_(self.src[index])


# ---- correctness ---------------------------------------------------------------

# Codes and rounded numbers of others may be the next one: they divide by approximate reciprocals, and
# AITER quantises what it has not rounded before. So many of them at most are another than ours.
MOST_DIFFERENT = 0.05


def step_of(row, name, want):
    """The distance of two neighbouring numbers of an output, at most."""
    size = want.abs()
    if name.endswith("_scale"):
        return size * 1e-6
    if name.endswith("_cache") and row.kv == "fp8":
        return size / 8 + 2.0 ** -9
    if name.endswith("_cache") and row.kv == "i8":
        return torch.ones_like(size)
    return size / 128 + 2.0 ** -18  # the second: differences of products of f32


def is_near(row, name, got, want):
    differ = apart = 0
    for a, b in zip(got.view(-1).split(1 << 26), want.view(-1).split(1 << 26)):
        same = a.view(torch.uint8) == b.view(torch.uint8) if a.element_size() == 1 else words(a) == words(b)
        if bool(same.all()):
            continue
        a, b = a.float(), b.float()
        apart += int((~((a - b).abs() <= step_of(row, name, b))).sum())
        differ += int((a != b).sum())
    return not apart and (name.endswith("_scale") or differ <= MOST_DIFFERENT * want.numel())


def differences(made, case, wanted):
    """Names of the outputs that differ from what is wanted; whole buffers are compared."""
    names = []
    for name, got in case.outputs().items():
        want = wanted[name]
        same = torch.equal(got.view(torch.uint8), want.view(torch.uint8))
        if not same and (made.exact or not is_near(case.row, name, got, want)):
            names.append(name)
    return names


def run_all(candidate, case):
    case.poison()
    for index in range(case.sets):
        candidate.run(case, index)
    candidate.finish(case)


def reference(case):
    run_all(Exact(), case)
    return {name: t.clone() for name, t in case.outputs().items()}


def candidates(row, context, peers):
    return [Kgen(context, row)] + [p for p in peers if p.takes(row)] + [Torch()]


def sorted_out(row, case, context, peers, wanted):
    """(candidates that are right, 'name: reason' of the others)"""
    good, said = [], []
    for candidate in candidates(row, context, peers):
        try:
            candidate.bind(case)
            run_all(candidate, case)
            names = differences(candidate, case, wanted)
        except Exception as error:  # a peer may fail in any way; the others go on
            names = [f"{type(error).__name__}: {str(error)[:300]}"]
        if names:
            said.append(f"{candidate.name}: {', '.join(names)}")
        else:
            good.append(candidate)
    return good, said


def small_rows(rows, x):
    """Each kernel as a decode step and as a prompt."""
    few = dict(heads=2, q_heads=4, x=x)
    return sorted({dataclasses.replace(r, tokens=n, **few) for r in rows for n in (3, 66)}, key=dataclasses.astuple)


def check(rows, context, device, peers):
    """Returns how many kernels of ours failed, and how many candidates did."""
    ours = failed = 0
    for row in small_rows(rows, "fp16" if device == "cpu" else "bf16"):  # interpreted bf16 has no products
        case = Case(row, device, 2, 40 * row.page_bytes)
        good, said = sorted_out(row, case, context, peers, reference(case))
        ours += "kgen" not in [m.name for m in good]
        failed += len(said)
        print(f"check {'FAIL' if said else 'ok  '} {row.name:26} {', '.join(m.name for m in good):32} "
              f"{'; '.join(said)}", flush=True)
    return ours, failed


# ---- time ------------------------------------------------------------------------


def time_row(row, options, context, peers):
    case = Case(row, "cuda", case_sets(row), POOL_BYTES)
    wanted = reference(case)
    good, said = sorted_out(row, case, context, peers, wanted)
    for line in said:
        print(f"  {row.name}: left out: {line}", flush=True)
    yardstick = Copy()
    yardstick.bind(case)
    graphs = {}
    for candidate in good + [yardstick]:
        graphs[candidate.name] = harness.capture(candidate, case)
    for candidate in good:  # a graph's results are its own
        case.poison()
        graphs[candidate.name].replay()
        if differences(candidate, case, wanted):
            raise kg.KgenError(f"{candidate.name}: its graph's results differ")
    del wanted
    return summary(case, harness.interleave(graphs, case.sets, options.repeats))


def summary(case, times):
    row, median = case.row, {n: statistics.median(t) for n, t in times.items()}
    if "kgen" not in median:
        raise kg.KgenError("kgen is wrong")
    ours = median["kgen"]
    peers = {n: us for n, us in median.items() if n not in ("kgen", "torch", "copy")}
    others = {n: us for n, us in median.items() if n not in ("kgen", "copy")}
    peer, best = (min(d, key=d.get, default=None) for d in (peers, others))
    return {"row": row.name, "spec": row.spec, "launches": case.sets, "bytes": row.bytes, "kgen_us": ours,
            "kgen_min_us": min(times["kgen"]), "peer_us": peers.get(peer), "peer_best": peer,
            "torch_us": median.get("torch"), "ratio": others[best] / ours if best else None,
            "ratio_of": best, "copy_us": median["copy"], "of_copy": median["copy"] / ours,
            "gbs": row.bytes / ours / 1e3, "all": median}


# ---- report ------------------------------------------------------------------------

COLUMNS = (("row", "row", "{:<26}"), ("kgen_us", "kgen us", "{:9.2f}"), ("peer_us", "peer us", "{:9.2f}"),
           ("peer_best", "peer", "{:>9}"), ("torch_us", "torch us", "{:9.2f}"), ("ratio", "ratio", "{:6.2f}"),
           ("copy_us", "copy us", "{:9.2f}"), ("of_copy", "of copy", "{:7.2f}"), ("gbs", "GB/s", "{:6.0f}"))


def measure(rows, options, context, peers):
    """Returns how many rows gave no number."""
    report = {"device": context.name, "torch": torch.__version__, "seed": options.seed, "rows": []}
    print(f"{context.name}, torch {torch.__version__}\n{harness.heading(COLUMNS)}", flush=True)
    harness.time_rows(rows, options, report, lambda row: time_row(row, options, context, peers),
                      lambda result: [harness.line_of(COLUMNS, result)])
    for key, title in (("ratio", "the best of the others / kgen"), ("of_copy", "copy / kgen")):
        print(harness.mean_line(title, [r[key] for r in report["rows"]]) or f"{title}: no row")
    return len(rows) - len(report["rows"])


# ---- the command ---------------------------------------------------------------------


def parse():
    p = harness.parser(__doc__, "kv_bench", (5, 15))
    p.add_argument("--no-peer", action="store_true", help="torch and the copy only")
    p.add_argument("--rows", default="", help="regular expression over names of rows: 'write nhd.* t(64|2048)$'")
    return harness.settle(p.parse_args(), (5, 15))


def rows(options):
    return [row for row in all_rows() if re.search(options.rows, row.name)]


def peers(options):
    found, reasons = ([], []) if options.no_peer else kv_peers.available()
    for reason in reasons:
        print(f"left out: {reason}", flush=True)
    return found


def main():
    options = parse()
    chosen = rows(options)
    if options.list:
        print("\n".join(f"{row.name:26} {row.spec}" for row in chosen))
        return 0
    if options.build:
        return harness.build_specs(specs_of(chosen))
    torch.manual_seed(options.seed)
    context, device = harness.open_device("cpu:sm90" if options.dry_run else "cuda:0")
    others = peers(options)
    print(f"seed {options.seed}, {context.name}, {len(chosen)} rows", flush=True)
    ours, failed = (0, 0) if options.no_check else check(chosen, context, device, others)
    bad = failed if options.dry_run else ours
    if not (options.check or options.dry_run):
        bad += measure(chosen, options, context, others)
    context.close()
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
