"""Times kgen's Gated DeltaNet on an NVIDIA GPU, beside the kernels of AITER, vLLM and FlashInfer.

Level a (gates and recurrence) beside the peers' recurrence kernels; level e (from the in-projection
to the gated norm, one launch) beside the sum of the launches that it replaces. All of them work on
the same tensors in one process: a CUDA graph holds N launches, each with its own slots of a pool of
a gigabyte or more; replays of all candidates alternate. See docs/bench.md.

  --build     compile the kernels of the grid into the cache; needs no GPU and no torch
  --check     only compare small cases with a float32 reference
  --dry-run   the same without a GPU: ours on cpu:sm90, the peers' Triton kernels interpreted
"""
import argparse
import dataclasses
import os
import re
import statistics
import sys
import time

import harness
import kgen_ctypes as kg

try:
    import torch
    import torch.nn.functional as F
    import triton
    import gdn_peers
    from peers import compute_units
except ImportError:  # --build does without
    torch = None

COLD_BYTES = 512 << 20  # of states between two uses of one: 8 times the L2 cache
POOL_BYTES = 1 << 30
MAX_LAUNCHES = 1024
SHAPES = ((16, 32), (16, 48), (16, 64))
BATCHES = (1, 8, 32, 64, 128, 256, 512)
DRAFT = 4


# ---- the grid ----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Row:
    heads: tuple = (16, 32)  # of the model: key heads, value heads
    tp: int = 1
    state: str = "f32"
    batch: int = 1
    tokens: int = 1
    layout: str = "flat"
    k: int = 128
    v: int = 128
    w: int = 4
    x: str = "bf16"

    @property
    def dtype(self):
        return {"bf16": torch.bfloat16, "fp16": torch.float16}[self.x]

    @property
    def hk(self):
        return self.heads[0] // self.tp

    @property
    def hv(self):
        return self.heads[1] // self.tp

    @property
    def name(self):
        draft = f" t{self.tokens}" if self.tokens > 1 else ""
        return f"{self.heads[0]}/{self.heads[1]} tp{self.tp} {self.state}{draft} b{self.batch}"

    @property
    def channels(self):
        return 2 * self.hk * self.k + self.hv * self.v

    def spec(self, level):
        """Level a takes b and a apart, as its peers do; both levels as vLLM keeps its states."""
        layout = "presplit" if level == "a" else self.layout
        several = f",t={self.tokens},varlen=1,index=spec,accept=1,save=slots" if self.tokens > 1 else ""
        return (f"gdn:fuse={level},layout={layout},x={self.x},hk={self.hk},hv={self.hv},state={self.state}"
                f",sl=vk,pad=nonpos{several}")

    @property
    def slot_bytes(self):
        return self.hv * self.v * self.k * (4 if self.state == "f32" else 2)

    def bytes(self, level):
        """What one launch has to move: states, windows, and rows in and out; weights are cached."""
        t, c, vd = self.tokens, self.channels, self.hv * self.v
        state = (1 + t) * self.slot_bytes
        if level == "a":
            return self.batch * (state + t * 2 * (c + 2 * self.hv + vd))
        window = self.w - 1 + (self.w - 1 if t == 1 else self.w - 2 + t)
        return self.batch * (state + window * c * 2 + t * 2 * (c + vd + 2 * self.hv + vd))


def all_rows(layout):
    one = [Row(heads, tp, state, batch, 1, layout) for heads in SHAPES for tp in (1, 2, 4, 8)
           for state in ("f32", "bf16") for batch in BATCHES]
    drafts = [Row(heads, tp, state, batch, DRAFT, layout) for heads, tp in (((16, 32), 1), ((16, 32), 4), ((16, 48), 8))
              for state in ("f32", "bf16") for batch in (1, 8, 32, 128)]
    return one + drafts


def specs_of(rows, options):
    return sorted({harness.with_tuning(r.spec(level), v) for r in rows for level in options.levels
                   for v in harness.variants_of(options)})


# ---- data --------------------------------------------------------------------


def normal_numbers(count, dtype, device):
    numbers = torch.empty(count, dtype=dtype, device=device)
    for part in numbers.split(1 << 28):
        part.normal_(0, 0.1)
    return numbers


class Case:
    """Tensors of a row. Slot 0 stands for no sequence, as in vLLM; a set has slots of its own."""

    def __init__(self, row, device, sets, pool_bytes):
        self.row, self.device, self.sets = row, device, sets
        n, t, columns = row.batch, row.batch * row.tokens, row.tokens
        slots = 1 + max(sets * n * columns, pool_bytes // row.slot_bytes)
        kind = torch.float32 if row.state == "f32" else torch.bfloat16
        self.state = harness.Pools.take("state", (slots, row.hv, row.v, row.k), kind, device, normal_numbers)
        self.conv = torch.randn((slots, row.w - 1 + row.tokens - 1, row.channels), dtype=row.dtype, device=device)
        self.conv_view = self.conv.transpose(1, 2)
        order = (torch.randperm(slots - 1, dtype=torch.int32)[:sets * n * columns] + 1).to(device)
        self.slots = order.view(sets, n) if columns == 1 else order.view(sets, n, columns)
        self.conv_slots = self.slots if columns == 1 else self.slots[:, :, 0]
        self.make_inputs(row, t, device)
        several = row.tokens > 1
        self.accepted = torch.randint(1, columns + 1, (n,), dtype=torch.int32).to(device) if several else None
        self.cu = torch.arange(0, t + 1, row.tokens, dtype=torch.int32, device=device)

    def make_inputs(self, row, t, device):
        def rand(*shape, scale=1.0):
            return (torch.randn(shape, device=device) * scale).to(row.dtype)
        self.qkvz = rand(t, row.channels + row.hv * row.v)
        self.ba = rand(t, 2 * row.hv)
        self.x = F.silu(rand(t, row.channels))
        self.b, self.a = rand(t, row.hv), rand(t, row.hv)
        self.conv_weight = rand(row.channels, row.w, scale=0.5)
        self.a_log = -1 - 2 * torch.rand(row.hv, device=device)
        self.dt_bias = rand(row.hv, scale=0.1)
        self.norm_weight = rand(row.v, scale=0.1) + 1
        self.norm_eps = 1e-6
        self.out = torch.full((t, row.hv, row.v), float("nan"), dtype=row.dtype, device=device)
        self.core, self.z_out = torch.zeros_like(self.out), torch.zeros_like(self.out)
        self.x_out = torch.empty_like(self.x)

    def split(self):
        """x, z [T][Hv][V], b, a of the rows: views in flat, copies in interleaved."""
        row, t = self.row, self.qkvz.shape[0]
        group = row.hv // row.hk
        if row.layout == "flat":
            x, z = self.qkvz.split([row.channels, row.hv * row.v], dim=-1)
            b, a = self.ba.split([row.hv, row.hv], dim=-1)
            return x, z.view(t, row.hv, row.v), b, a
        q, k, v, z = self.qkvz.view(t, row.hk, -1).split([row.k, row.k, group * row.v, group * row.v], dim=-1)
        b, a = self.ba.view(t, row.hk, -1).split([group, group], dim=-1)
        x = torch.cat([part.reshape(t, -1) for part in (q, k, v)], dim=-1)
        return x, z.reshape(t, row.hv, row.v), b.reshape(t, -1), a.reshape(t, -1)

    def keep(self):
        self.kept = self.state.clone(), self.conv.clone()

    def restore(self):
        self.state.copy_(self.kept[0])
        self.conv.copy_(self.kept[1])
        self.out.fill_(float("nan"))
        self.core.fill_(float("nan"))


def case_sets(row):
    """Launches of a graph: so many that no state is found in the cache."""
    per_set = (1 + row.tokens) * row.batch * row.slot_bytes
    return min(MAX_LAUNCHES, max(2, -(-COLD_BYTES // per_set)))


# ---- reference: float32, from the definition ----------------------------------


class Reference:
    """Output, and the states that were written, of one set of a case."""

    def __init__(self, case, index, level):
        self.case, self.row = case, case.row
        n, t = case.row.batch, case.row.tokens
        slots = case.slots[index].long().view(n, -1)
        first = (case.accepted.long() if t > 1 else torch.ones(n, dtype=torch.long, device=case.device)) - 1
        if level == "a":
            x, b, a = case.x, case.b, case.a
        else:
            x, z, b, a = case.split()
            x = self.convolve(x.float().view(n, t, -1), slots[:, 0], first)
        out = self.recur(x.float().view(n, t, -1), b.float().view(n, t, -1), a.float().view(n, t, -1),
                         case.state[slots.gather(1, first[:, None])[:, 0]].float())
        self.slots = slots
        self.out = out if level == "a" else self.norm(out, z.float())

    def convolve(self, x, slots, first):
        case, row = self.case, self.row
        columns = first[:, None] + torch.arange(row.w - 1, device=x.device)
        window = case.conv[slots].float().gather(1, columns[:, :, None].expand(-1, -1, row.channels))
        series = torch.cat([window, x], dim=1)
        weight = case.conv_weight.float()
        sums = sum(weight[:, j] * series[:, j:j + row.tokens] for j in range(row.w))
        self.window = series[:, 1:].to(row.dtype)
        return F.silu(sums).to(row.dtype)

    def recur(self, x, b, a, state):
        case, row = self.case, self.row
        n, t, group = row.batch, row.tokens, row.hv // row.hk
        q, k, v = x.split([row.hk * row.k, row.hk * row.k, row.hv * row.v], dim=-1)
        q, k = (part.view(n, t, row.hk, row.k) for part in (q, k))
        q, k = (part * torch.rsqrt(part.square().sum(-1, keepdim=True) + 1e-6) for part in (q, k))
        q, k = (part.repeat_interleave(group, dim=2) for part in (q * row.k ** -0.5, k))
        decay = torch.exp(-torch.exp(case.a_log) * F.softplus(a + case.dt_bias.float()))
        v, outs, self.states = v.view(n, t, row.hv, row.v), [], []
        for i in range(t):
            state = state * decay[:, i, :, None, None]
            u = torch.sigmoid(b[:, i])[..., None] * (v[:, i] - torch.einsum("nhvk,nhk->nhv", state, k[:, i]))
            state = state + u[..., None] * k[:, i, :, None, :]
            outs.append(torch.einsum("nhvk,nhk->nhv", state, q[:, i]))
            self.states.append(state)
        return torch.stack(outs, 1).reshape(n * t, row.hv, row.v)

    def norm(self, out, z):
        out = out.to(self.row.dtype).float()
        out = out * torch.rsqrt(out.square().mean(-1, keepdim=True) + self.case.norm_eps)
        return out * self.case.norm_weight.float() * F.silu(z)

    def error(self, out):
        """Largest error as a share of the largest value, over output and states; NaN counts."""
        pairs = [(out.float().reshape(self.out.shape), self.out)]
        pairs += [(self.case.state[self.slots[:, i]].float(), state) for i, state in enumerate(self.states)]
        if hasattr(self, "window"):
            pairs.append((self.case.conv[self.slots[:, 0], :self.window.shape[1]].float(), self.window.float()))
        return max(((got - want).abs().nan_to_num(float("inf")).max() / want.abs().max()).item()
                   for got, want in pairs)


# ---- ours ----------------------------------------------------------------------


class Kgen:
    def __init__(self, context, row, level, variant, device):
        self.name, self.level = f"kgen {variant}" if variant else "kgen", level
        self.context, self.device, self.args, self.held = context, device, [], None
        self.kernel = context.prepare(harness.with_tuning(row.spec(level), variant))

    def takes(self, row):
        return True

    def bind(self, case):
        first = self.arguments(case, 0)
        size = self.context.workspace_bytes(self.kernel, first)
        self.held = torch.empty(size + 256, dtype=torch.uint8, device=self.device)
        if size:
            first.workspace, first.workspace_bytes = -(-self.held.data_ptr() // 256) * 256, size
            self.context.workspace_init(first.workspace, size, harness.current_stream(self.device))
        self.args = []
        for index in range(case.sets):
            args = self.arguments(case, index)
            args.workspace, args.workspace_bytes = first.workspace, first.workspace_bytes
            self.args.append(args)

    def arguments(self, case, index):
        args, row = kg.Args("gdn"), case.row
        gdn = args.part
        gdn.q_scale, gdn.l2_eps = row.k ** -0.5, 1e-6
        gdn.slots, gdn.state, gdn.out = kg.tensor(case.slots[index]), kg.tensor(case.state, "vk"), kg.tensor(case.out)
        gdn.a_log, gdn.dt_bias = kg.tensor(case.a_log), kg.tensor(case.dt_bias)
        if row.tokens > 1:
            gdn.accepted, gdn.cu_seqlens = kg.tensor(case.accepted), kg.tensor(case.cu)
        if self.level == "a":
            gdn.x, gdn.b, gdn.a = kg.tensor(case.x), kg.tensor(case.b), kg.tensor(case.a)
            return args
        gdn.norm_eps = case.norm_eps
        gdn.qkvz, gdn.ba = kg.tensor(case.qkvz, row.layout), kg.tensor(case.ba, row.layout)
        gdn.conv_weight, gdn.norm_weight = kg.tensor(case.conv_weight), kg.tensor(case.norm_weight)
        gdn.conv_state = kg.tensor(case.conv, "sd")
        return args

    def run(self, case, index):
        self.context.launch(self.kernel, self.args[index], harness.current_stream(self.device))
        return case.out

    def finish(self):
        self.context.sync(harness.current_stream(self.device))


def candidates(row, options, context, device, peers):
    made = []
    for level in options.levels:
        for variant in harness.variants_of(options):
            try:
                made.append(Kgen(context, row, level, variant, device))
            except kg.KgenError as error:
                print(f"  {row.name}: kgen {level} {variant}: {error}", flush=True)
    return made + [p for p in peers if p.level in options.levels and p.takes(row)]


# ---- correctness ---------------------------------------------------------------


def try_once(candidate, case, index):
    """Error of one launch from the kept states; None where the candidate cannot run the case."""
    case.restore()
    reference = Reference(case, index, candidate.level)
    try:
        candidate.bind(case)
        out = candidate.run(case, index)
        getattr(candidate, "finish", lambda: None)()
        return reference.error(out)
    except Exception as error:  # a peer may fail in any way; the others go on
        print(f"  {case.row.name}: {candidate.name} ({candidate.level}): {type(error).__name__}: "
              f"{str(error)[:300]}", flush=True)
        return None


def is_right(error):
    """Products of 16-bit numbers: 1/64 of the largest value is allowed."""
    return error is not None and error <= 1 / 64


def small_rows(rows):
    """One for each kernel."""
    return {r.spec("e"): dataclasses.replace(r, batch=3) for r in rows}.values()


def check(rows, options, context, device, peers):
    """(kernels of ours that failed, {(peer, level, row without batch)} that did)"""
    failed, bad = 0, set()
    for row in small_rows(rows):
        case = Case(row, device, 2, 0)
        case.keep()
        for candidate in candidates(row, options, context, device, peers):
            error = try_once(candidate, case, 1)
            good, ours = is_right(error), isinstance(candidate, Kgen)
            failed += not good and ours
            if not good:
                bad.add((candidate.name, candidate.level, row))
            if not good or ours:
                said = f"error {error:.2g}" if error is not None else "did not run"
                print(f"check {'ok  ' if good else 'FAIL'} {candidate.name:10} {candidate.level} {said:14} "
                      f"{row.spec(candidate.level)}", flush=True)
        case.restore()  # later cases see the same memory
    return failed, bad


# ---- time ------------------------------------------------------------------------


def time_row(row, options, context, peers, bad, copy_gbs):
    case = Case(row, "cuda", case_sets(row), POOL_BYTES)
    graphs = {}
    for candidate in candidates(row, options, context, "cuda", peers):
        if (candidate.name, candidate.level, dataclasses.replace(row, batch=3)) in bad:
            continue
        try:
            candidate.bind(case)
            candidate.run(case, 0)
            graphs[candidate.level, candidate.name] = harness.capture(candidate, case)
        except Exception as error:
            print(f"  {row.name}: {candidate.name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    times = harness.interleave(graphs, case.sets, options.repeats)
    return summary(row, case.sets, times, copy_gbs)


def summary(row, sets, times, copy_gbs):
    result = {"row": row.name, "launches": sets}
    median = {n: statistics.median(t) for n, t in times.items()}
    for level in "ae":
        ours = median.get((level, "kgen"))
        of_level = {name: us for (at, name), us in median.items() if at == level}
        peers = {name: us for name, us in of_level.items() if not name.startswith("kgen")}
        best = min(peers, key=peers.get) if peers else None
        result |= {
            f"{level}_spec": row.spec(level), f"{level}_mb": row.bytes(level) / 1e6, f"{level}_us": ours,
            f"{level}_min_us": min(times[level, "kgen"]) if ours else None,
            f"{level}_share": row.bytes(level) / ours / 1e3 / copy_gbs if ours else None,
            f"{level}_peer_us": peers.get(best), f"{level}_best": best,
            f"{level}_ratio": peers[best] / ours if best and ours else None, f"{level}_all": of_level}
        result |= {f"{level}_{name}_us": us for name, us in peers.items()}
    result["e_to_a"] = result["e_us"] / result["a_us"] if result["e_us"] and result["a_us"] else None
    return result


def copy_bandwidth(repeats):
    """GB/s read and written: copies of several sizes and an update in place, the best."""
    best, how = 0, ""
    for size in (1 << 28, 1 << 29, 1 << 30):
        src = torch.ones(size, dtype=torch.int32, device="cuda")
        dst = torch.empty_like(src)
        for name, call in (("copy", lambda: dst.copy_(src)), ("in place", lambda: dst.add_(1))):
            gbs = size * 8 / harness.median_us(call, repeats) / 1e3
            if gbs > best:
                best, how = gbs, f"{name} of {size * 4 >> 20} MiB"
        del src, dst
    torch.cuda.empty_cache()
    return best, how


# ---- the peers' kernels, compiled by many processes before anything is timed ------


def warm(rows, options, peers):
    """One process of many: launches its share of the grid over small pools."""
    part, parts = map(int, options.warm.split("/"))
    work = {}
    for row in list(small_rows(rows)) + ([] if options.check else rows):
        # variants of a kernel: a size is 1 or a multiple of 16; the norm takes 1, 2 or 4 rows a program
        programs = 2 * compute_units()
        many = min(4, triton.next_power_of_2(-(-row.batch * row.tokens * row.hv // programs)))
        work.setdefault(dataclasses.replace(row, batch=(row.batch == 1, row.batch % 16 == 0, many)), row)
    for row in list(work.values())[part::parts]:
        case = Case(row, "cuda", 1, 0)
        for peer in peers:
            if peer.level in options.levels and peer.takes(row):
                try:
                    peer.bind(case)
                    peer.run(case, 0)
                except Exception:
                    pass  # said by the process that measures
    torch.cuda.synchronize()
    return 0


# ---- report ------------------------------------------------------------------------

COLUMNS = (("row", "row", "{:24}"), ("a_us", "a us", "{:8.1f}"), ("a_share", "of copy", "{:7.1%}"),
           ("a_peer_us", "peer us", "{:8.1f}"), ("a_ratio", "peer/a", "{:6.2f}"), ("a_best", "best", "{:10}"),
           ("e_us", "e us", "{:8.1f}"), ("e_share", "of copy", "{:7.1%}"), ("e_peer_us", "peers us", "{:8.1f}"),
           ("e_ratio", "peer/e", "{:6.2f}"), ("e_best", "best", "{:10}"), ("e_to_a", "e/a", "{:5.2f}"))


def details(result):
    """Every variant and peer of a level."""
    return [f"      {level}: " + "  ".join(f"{n} {us:.1f}" for n, us in sorted(result[f"{level}_all"].items(),
                                                                             key=lambda i: i[1]))
            for level in "ae" if len(result[f"{level}_all"]) > 2]


def geometric_mean(values):
    return statistics.geometric_mean(values) if values else float("nan")


def totals(results):
    for level in "ae":
        ratios = [r[f"{level}_ratio"] for r in results if r[f"{level}_ratio"]]
        shares = [r[f"{level}_share"] for r in results if r[f"{level}_share"]]
        if ratios:
            print(f"level {level}: best peer / kgen {geometric_mean(ratios):.2f} (least {min(ratios):.2f}, most "
                  f"{max(ratios):.2f}, {sum(x < 1 for x in ratios)} of {len(ratios)} below 1); of copy at most "
                  f"{max(shares):.1%}")
    both = [r["e_to_a"] for r in results if r["e_to_a"]]
    if both:
        print(f"level e / level a: {geometric_mean(both):.2f} (most {max(both):.2f})")


def measure(rows, options, context, peers, bad):
    gbs, how = copy_bandwidth(options.repeats)
    report = {"device": context.name, "torch": torch.__version__, "triton": triton.__version__,
              "copy_gbs": gbs, "copy_how": how, "rows": []}
    print(f"{context.name}: copy {gbs:.0f} GB/s ({how})\n{harness.heading(COLUMNS)}", flush=True)
    started = time.time()
    left = harness.time_rows(
        rows, options, report, lambda row: time_row(row, options, context, peers, bad, gbs),
        lambda result: [harness.line_of(COLUMNS, result)] + details(result),
        lambda longest: options.seconds and time.time() - started > options.seconds)
    if left:
        print(f"{left[0].name}: and the rest left out after {options.seconds} s")
    totals(report["rows"])


# ---- the command ---------------------------------------------------------------------


def parse():
    p = harness.parser(__doc__, "gdn_bench", (3, 7))
    p.add_argument("--rows", default="", help="regular expression over names of rows: 'tp[18] f32.* b(1|64)$'")
    p.add_argument("--levels", default="ae")
    p.add_argument("--layout", default="flat", choices=("flat", "interleaved"), help="of level e's rows")
    p.add_argument("--variants", default="", help="tuning keys to try beside the default: 'occ=1;waves=4,occ=2'")
    p.add_argument("--no-peer", action="store_true", help="kgen alone")
    p.add_argument("--seconds", type=int, default=0, help="start no row after so long")
    p.add_argument("--warm-processes", type=int, default=min(12, os.cpu_count()))
    p.add_argument("--warm", default="", help=argparse.SUPPRESS)
    return harness.settle(p.parse_args(), (3, 7))


def rows(options):
    return [row for row in all_rows(options.layout) if re.search(options.rows, row.name)]


def peers(options):
    if options.no_peer:
        return []
    found, reasons = gdn_peers.available()
    if not options.warm:
        print("peers: " + (", ".join(f"{p.name} ({p.level})" for p in found) or "none"))
        print("\n".join(f"  left out: {reason}" for reason in reasons))
    return found


def dry_run(rows, options):
    """Small cases of a few kernels; `--rows` names others."""
    others = [p for p in peers(options) if p.name not in ("vllm-cuda", "flashinfer")]
    context, device = harness.open_device("cpu:sm90")
    for spec in specs_of(rows, options):
        context.parse(spec)
    few = rows if options.rows else [
        Row((16, 48), 8, "f32", 3), Row((16, 32), 8, "bf16", 3), Row((16, 32), 8, "f32", 3, DRAFT),
        Row((16, 32), 8, "f32", 3, 1, "interleaved")]
    few = [dataclasses.replace(r, x="fp16") for r in few]  # the interpreter has no products of bf16
    failed, bad = check(few, options, context, device, others)
    context.close()
    print(f"{len(others)} peers, {len(bad)} failures")
    return int(failed > 0 or bool(bad))


def main():
    options = parse()
    chosen = rows(options)
    if options.list:
        print("\n".join(f"{row.name:26} {row.spec('e')}" for row in chosen))
        return 0
    if options.build:
        return harness.build_specs(specs_of(chosen, options))
    torch.manual_seed(options.seed)
    if options.dry_run:
        return dry_run(chosen, options)
    context, device = harness.open_device()
    others = peers(options)
    if options.warm:
        return warm(chosen, options, others)
    print(f"seed {options.seed}, {context.name}, {len(chosen)} rows", flush=True)
    if others:
        harness.precompile(__file__, options, "--warm")
    failed, bad = (0, set()) if options.no_check else check(chosen, options, context, device, others)
    if not options.check:
        measure(chosen, options, context, others, bad)
    context.close()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
