"""Times kgen's spec_prepare and page tables on an NVIDIA GPU, beside the torch operations they replace.

All of them work on the same inputs in one process: a CUDA graph holds N launches (of torch: N times
its operations), each with a req_to_token and tables of its own; replays of all candidates alternate.
See docs/bench.md.

  --build     compile the kernels of the grid into the cache; needs no GPU and no torch
  --check     only compare small cases
  --dry-run   the same without a GPU, on cpu:sm90
"""
import dataclasses
import re
import statistics
import sys

import harness
import kgen_ctypes as kg

try:
    import torch
except ImportError:  # --build does without
    torch = None

COLD_BYTES = 512 << 20  # of requests and tables between two uses of one: 10 times the L2 cache
MIN_LAUNCHES, MAX_LAUNCHES = 8, 1024
CONTEXT = 32 << 10
DRAFT = 4
SPARE = 64  # columns of req_to_token past the context
POISON = 0x5EADBEEF


# ---- the grid ----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Row:
    op: str  # of OPS
    page: int
    batch: int
    context: int = CONTEXT

    @property
    def name(self):
        return f"{self.op} p{self.page} b{self.batch}"

    @property
    def columns(self):
        return -(-self.context // self.page)

    @property
    def width(self):
        """Of a row of req_to_token."""
        return -(-self.context // 64) * 64 + SPARE

    def spec(self, delta=False):
        return f"scatter:op={OPS[self.op]},page={self.page}" + (",delta=1" if delta else "")

    @property
    def set_bytes(self):
        return 4 * self.batch * (self.width + self.columns)


OPS = {"prepare": "spec_prepare", "table": "page_table_requests"}


def all_rows():
    return [Row(op, page, batch) for op in OPS for page in (16, 1) for batch in (1, 32, 256)]


def specs_of(rows):
    deltas = {r.spec(True) for r in rows if r.op == "prepare"}
    return sorted({r.spec() for r in rows} | deltas)


def case_sets(row):
    """Launches of a graph: so many that no table is found in the cache."""
    return min(MAX_LAUNCHES, max(MIN_LAUNCHES, -(-COLD_BYTES // row.set_bytes)))


# ---- data --------------------------------------------------------------------


class Case:
    """Inputs of a row: requests in random order, at most an eighth shorter than the context."""

    def __init__(self, row, device, sets):
        self.row, self.device, self.sets = row, device, sets
        n = row.batch
        pool = (sets, n + 2, row.width // row.page, 1)
        slots = torch.randint(1, 1 << 20, pool, dtype=torch.int32, device=device) * row.page
        inside = torch.arange(row.page, dtype=torch.int32, device=device)
        self.req_to_token = (slots + inside).view(sets, n + 2, row.width)
        self.requests = torch.randperm(n + 2)[:n].to(device)
        most = row.context - DRAFT
        self.lens = torch.randint(most - most // 8, most + 1, (n,), dtype=torch.int32).to(device)
        self.live = torch.empty(1, dtype=torch.int32, device=device)
        self.steps = torch.arange(DRAFT, device=device)
        self.firsts = torch.arange(0, row.columns * row.page, row.page, dtype=torch.int32, device=device)
        self.set_live(n)

    def set_live(self, count):
        self.rows = count  # what an engine knows on the host
        self.live.fill_(count)

    def step(self):
        """The next step of a server: all requests grow, and two change places."""
        self.lens.add_(3).clamp_(max=self.row.context - DRAFT)
        self.requests[:2] = self.requests[:2].flip(0)

    def bytes(self):
        """What one launch has to move: (all, with delta); tables as a slot and a cell a page."""
        row = self.row
        pages = int(-(-(self.lens + DRAFT) // row.page).sum())
        table, small = 4 * (pages + row.batch * row.columns), row.batch * (4 + 8)
        if row.op == "prepare":
            small += row.batch * (3 * 4 + DRAFT * (4 + 8 + 8))
        return table + small, small + row.batch * 2 * 24


class Outputs:
    """What a candidate writes; a set has a table of its own."""
    SMALL = ("seq_lens", "qo_indptr", "kv_indptr", "locs", "positions")

    def __init__(self, case):
        n, device = case.row.batch, case.device
        self.seq_lens, self.qo_indptr, self.kv_indptr = (
            torch.empty(size, dtype=torch.int32, device=device) for size in (n, n + 1, n + 1))
        self.locs, self.positions = (torch.empty(n * DRAFT, dtype=torch.int64, device=device) for _ in "lp")
        self.table = torch.empty((case.sets, n, case.row.columns), dtype=torch.int32, device=device)
        self.poison()

    def poison(self):
        for name in self.SMALL + ("table",):
            getattr(self, name).fill_(POISON)


def difference(candidate, wanted, case, index):
    """Names of the outputs that differ; of loose tables only what it defines is compared."""
    got, want = candidate.outputs, wanted.outputs
    small = Outputs.SMALL if case.row.op == "prepare" else ()
    names = [n for n in small if not torch.equal(getattr(got, n), getattr(want, n))]
    tables = got.table[index], want.table[index]
    if candidate.loose:
        used = case.firsts < case.lens[:, None] + DRAFT
        used[case.rows:] = False
        tables = [t[used] for t in tables]
    return names + ([] if torch.equal(*tables) else ["table"])


# ---- ours ----------------------------------------------------------------------


class Kgen:
    loose = False

    def __init__(self, context, row, delta):
        self.name, self.context, self.delta = "delta" if delta else "kgen", context, delta
        self.kernel = context.prepare(row.spec(delta))

    def bind(self, case):
        self.outputs = Outputs(case)
        self.state = torch.full((case.sets, case.row.batch, 3), -1, dtype=torch.int64, device=case.device)
        self.args = [self.arguments(case, index) for index in range(case.sets)]
        if self.context.workspace_bytes(self.kernel, self.args[0]):
            raise kg.KgenError("scatter wants a workspace")

    def arguments(self, case, index):
        args, out = kg.Args("scatter"), self.outputs
        op = OPS[case.row.op]
        args.part.op, args.part.live = kg.SCATTER_OPS[op], kg.tensor(case.live)
        scatter = getattr(args.part, op)
        scatter.tokens = DRAFT
        scatter.lens, scatter.requests = kg.tensor(case.lens), kg.tensor(case.requests)
        scatter.req_to_token, scatter.table = kg.tensor(case.req_to_token[index]), kg.tensor(out.table[index])
        if case.row.op == "prepare":
            scatter.pad_len = DRAFT
            scatter.seq_lens, scatter.locs = kg.tensor(out.seq_lens), kg.tensor(out.locs)
            scatter.qo_indptr, scatter.kv_indptr = kg.tensor(out.qo_indptr), kg.tensor(out.kv_indptr)
            scatter.positions_out = kg.tensor(out.positions)
        if self.delta:
            scatter.ids, scatter.state = kg.tensor(case.requests), kg.tensor(self.state[index])
        return args

    def poison(self):
        if not self.delta:  # nobody else writes its table
            self.outputs.poison()

    def run(self, case, index):
        self.context.launch(self.kernel, self.args[index], harness.current_stream(case.device))

    def finish(self, case):
        self.context.sync(harness.current_stream(case.device))


# ---- theirs ----------------------------------------------------------------------


class Torch:
    """The same result in as few operations as we found; `gather` says how pages are fetched.

    The number of rows in use is known on the host, constant vectors are made before."""
    loose = False

    def __init__(self, gather):
        self.name, self.gather = f"torch {gather}", gather

    def bind(self, case):
        self.outputs = Outputs(case)
        self.poison()

    def poison(self):
        self.outputs.poison()
        self.outputs.kv_indptr[0] = 0  # an engine sets it once

    def run(self, case, index):
        if case.row.op == "prepare":
            self.prepare(case, case.req_to_token[index])
        self.fill_table(case, index)

    def prepare(self, case, req_to_token):
        out, n, live = self.outputs, case.row.batch, case.rows
        locs, positions = out.locs.view(n, DRAFT), out.positions.view(n, DRAFT)
        torch.add(case.lens[:live], DRAFT, out=out.seq_lens[:live])
        torch.add(case.lens[:live, None], case.steps, out=positions[:live])
        locs[:live] = req_to_token[case.requests[:live, None], positions[:live]]
        if live < n:
            out.seq_lens[live:].fill_(DRAFT)
            positions[live:].zero_()
            locs[live:].zero_()
        torch.arange(0, (n + 1) * DRAFT, DRAFT, out=out.qo_indptr)
        torch.cumsum(out.seq_lens, 0, dtype=torch.int32, out=out.kv_indptr[1:])

    def fill_table(self, case, index):
        row, live = case.row, case.rows
        lens = self.outputs.seq_lens[:live] if row.op == "prepare" else case.lens[:live] + DRAFT
        table, requests = self.outputs.table[index], case.requests[:live]
        slots = case.req_to_token[index][:, :row.columns * row.page:row.page]
        tail = case.firsts >= lens[:, None]
        if self.gather == "select":
            pages = torch.index_select(slots, 0, requests, out=table[:live])
            if row.page > 1:
                pages.floor_divide_(row.page)
            pages.masked_fill_(tail, 0)
        else:
            pages = slots[requests]
            if row.page > 1:
                pages.floor_divide_(row.page)
            table[:live] = pages.masked_fill_(tail, 0)
        if live < row.batch:
            table[live:].zero_()

    def finish(self, case):
        pass


class Loose(Torch):
    """After the decode path of SGLang on AMD: temporaries copied into the buffers of the graph, every
    token gathered and every page-th kept; tails and padded rows of the table are left stale."""
    loose = True

    def __init__(self):
        super().__init__("loose")

    def prepare(self, case, req_to_token):
        out, n, live = self.outputs, case.row.batch, case.rows
        out.seq_lens.fill_(DRAFT)
        out.positions.zero_()
        out.locs.zero_()
        out.seq_lens[:live].copy_(case.lens[:live] + DRAFT)
        positions = case.lens[:live, None] + case.steps
        out.positions[:live * DRAFT] = positions.flatten()
        out.locs[:live * DRAFT] = req_to_token[case.requests[:live, None], positions].flatten()
        out.qo_indptr[:] = torch.arange(0, (n + 1) * DRAFT, DRAFT, dtype=torch.int32, device=case.device)
        out.kv_indptr[1:] = torch.cumsum(out.seq_lens, 0)

    def fill_table(self, case, index):
        row, live = case.row, case.rows
        slots = case.req_to_token[index][case.requests[:live], :row.columns * row.page]
        self.outputs.table[index, :live].copy_(slots[:, ::row.page] // row.page if row.page > 1 else slots)


def candidates(row, context):
    ours = [Kgen(context, row, delta) for delta in (False, True)[:2 if row.op == "prepare" else 1]]
    return ours + [Torch("select"), Torch("index"), Loose()]


# ---- correctness ---------------------------------------------------------------


def differences(made, case, index):
    """'name: outputs' of each candidate that differs from the first of torch."""
    wanted = next(m for m in made if isinstance(m, Torch))
    named = [(m.name, difference(m, wanted, case, index)) for m in made]
    return [f"{name}: {', '.join(outputs)}" for name, outputs in named if outputs]


def run_all(made, case, index):
    for candidate in made:
        candidate.poison()
        candidate.run(case, index)
        candidate.finish(case)
    return differences(made, case, index)


def check_row(row, context, device):
    """One padded row; then a step of the server; then all rows in use, and another step."""
    case = Case(row, device, 2)
    made = candidates(row, context)
    for candidate in made:
        candidate.bind(case)
    said = []
    for live in (row.batch - 1, row.batch - 1, row.batch):
        case.set_live(live)
        said += run_all(made, case, 1)
        case.step()
    return said + run_all(made, case, 1)


def check(rows, context, device):
    """Returns how many kernels of ours, with what torch does, failed."""
    failed = 0
    for row in sorted({dataclasses.replace(r, batch=n, context=300) for r in rows for n in (3, 70)},
                      key=dataclasses.astuple):
        said = check_row(row, context, device)
        failed += bool(said)
        print(f"check {'FAIL' if said else 'ok  '} {row.name:20} {row.spec()} {'; '.join(said)}", flush=True)
    return failed


# ---- time ------------------------------------------------------------------------


def capture(candidate, case):
    """A graph, whose results are then its own."""
    graph = harness.capture(candidate, case)
    candidate.poison()
    return graph


def agree(said):
    if said:
        raise kg.KgenError(f"results differ: {'; '.join(sorted(set(said)))}")


def time_row(row, options, context):
    case = Case(row, "cuda", case_sets(row))
    made = candidates(row, context)
    for candidate in made:
        candidate.bind(case)
    for index in range(case.sets):
        agree(run_all(made, case, index))
    graphs = {m.name: capture(m, case) for m in made}
    for graph in graphs.values():
        graph.replay()
    agree(differences(made, case, case.sets - 1))
    times = harness.interleave(graphs, case.sets, options.repeats)
    return summary(case, times)


def summary(case, times):
    row, median = case.row, {n: statistics.median(t) for n, t in times.items()}
    same = {n: us for n, us in median.items() if n in ("torch select", "torch index")}
    best, (moved, moved_delta) = min(same, key=same.get), case.bytes()
    delta = median.get("delta")
    return {"row": row.name, "spec": row.spec(), "launches": case.sets, "kgen_us": median["kgen"],
            "kgen_min_us": min(times["kgen"]), "delta_us": delta, "torch_us": same[best], "torch_best": best,
            "loose_us": median["torch loose"], "ratio": same[best] / median["kgen"],
            "delta_ratio": same[best] / delta if delta else None,
            "loose_ratio": median["torch loose"] / median["kgen"], "bytes": moved,
            "delta_bytes": moved_delta if delta else None, "gbs": moved / median["kgen"] / 1e3, "all": median}


# ---- report ------------------------------------------------------------------------

COLUMNS = (("row", "row", "{:<16}"), ("kgen_us", "kgen us", "{:9.2f}"), ("delta_us", "delta us", "{:9.2f}"),
           ("torch_us", "torch us", "{:9.2f}"), ("ratio", "ratio", "{:7.2f}"),
           ("delta_ratio", "of delta", "{:8.2f}"), ("loose_us", "loose us", "{:9.2f}"),
           ("bytes", "bytes", "{:11,}"), ("delta_bytes", "of delta", "{:9,}"), ("gbs", "GB/s", "{:7.0f}"))


def measure(rows, options, context):
    """Returns how many rows gave no number."""
    report = {"device": context.name, "torch": torch.__version__, "context": CONTEXT, "draft": DRAFT, "rows": []}
    print(f"{context.name}, torch {torch.__version__}\n{harness.heading(COLUMNS)}", flush=True)
    harness.time_rows(rows, options, report, lambda row: time_row(row, options, context),
                      lambda result: [harness.line_of(COLUMNS, result)])
    for key, title in (("ratio", "torch / kgen"), ("delta_ratio", "torch / kgen delta"),
                       ("loose_ratio", "loose / kgen")):
        print(harness.mean_line(title, [r[key] for r in report["rows"]]) or f"{title}: no row")
    return len(rows) - len(report["rows"])


# ---- the command ---------------------------------------------------------------------


def parse():
    p = harness.parser(__doc__, "scatter_bench", (5, 15))
    p.add_argument("--rows", default="", help="regular expression over names of rows: 'prepare p16 b(1|32)$'")
    return harness.settle(p.parse_args(), (5, 15))


def rows(options):
    return [row for row in all_rows() if re.search(options.rows, row.name)]


def main():
    options = parse()
    chosen = rows(options)
    if options.list:
        print("\n".join(f"{row.name:16} {row.spec()}" for row in chosen))
        return 0
    if options.build:
        return harness.build_specs(specs_of(chosen))
    torch.manual_seed(options.seed)
    context, device = harness.open_device("cpu:sm90" if options.dry_run else "cuda:0")
    print(f"seed {options.seed}, {context.name}, {len(chosen)} rows", flush=True)
    failed = 0 if options.no_check else check(chosen, context, device)
    if not (options.check or options.dry_run):
        failed += measure(chosen, options, context)
    context.close()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
