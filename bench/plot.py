"""Pictures of what the benchmarks measured: PNG and SVG from their JSON files.

  NAME_roofline   achieved bandwidth over the bytes that a launch has to move, beside the device's read and copy
  NAME_map        best peer's time over kgen's, batch by context (attn_bench.py --grid)
  NAME_share      share of the copy bandwidth over the batch (gdn_bench.py)

NAME is that of the file. Files of attn_bench.py, gdn_bench.py, kv_bench.py and of `kgen bench --json` are told
apart by what they hold. Needs matplotlib. The same file gives the same SVG.
"""
import argparse
import json
import math
import pathlib
import re
import sys

from places import ROOT

SALT = "kgen"  # of the names inside an SVG
WIDTH, HEIGHT, DPI = 10, 6, 150

# Okabe and Ito's colours, with a marker each: told apart without colour too.
STYLES = {
    "kgen": ("#0072B2", "o"), "aiter": ("#E69F00", "s"), "vllm": ("#009E73", "^"), "vllm-cuda": ("#56B4E9", "v"),
    "flashinfer": ("#CC79A7", "D"), "torch": ("#7F7F7F", "X"), "peer": ("#D55E00", "P"), "copy": ("#404040", "_"),
}
FAMILY_STYLES = {"attn": ("#0072B2", "o"), "gdn": ("#E69F00", "s"), "scatter": ("#009E73", "^"),
                 "kv_write": ("#CC79A7", "D"), "kv_gather": ("#D55E00", "v")}
STATES = {"f32": "#0072B2", "bf16": "#D55E00"}
TIMES = "\N{MULTIPLICATION SIGN}"


class PlotError(RuntimeError):
    pass


# ---- the files -----------------------------------------------------------------

# A field that only rows of this program have.
KINDS = {"attn_bench": "kv_mb", "gdn_bench": "a_mb", "kv_bench": "of_copy", "kgen bench": "of_limit"}


def read(path):
    """The report of a file, with its kind and name."""
    try:
        report = json.loads(pathlib.Path(path).read_text())
    except OSError as error:
        raise PlotError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise PlotError(f"{path}: not JSON: {error}") from None
    rows = report.get("rows") if isinstance(report, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise PlotError(f"{path}: no list of rows: not a file of {', '.join(KINDS)}")
    kind = next((kind for kind, field in KINDS.items() if any(field in row for row in rows)), None)
    if not kind:
        raise PlotError(f"{path}: " + ("its rows are not those of " + ", ".join(KINDS) if rows else "no rows"))
    return {**report, "kind": kind, "name": pathlib.Path(path).stem}


def limits(report):
    """name -> TB/s"""
    known = report.get("limits", {})
    found = {"read": known.get("read_tb_s", report.get("read_gbs", 0) / 1e3),
             "copy": known.get("copy_tb_s", report.get("copy_gbs", 0) / 1e3)}
    return {name: tb_s for name, tb_s in found.items() if tb_s}


def attn_times(row):
    """series -> microseconds of a launch"""
    times = {name: row.get(f"{name}_us") for name in ("kgen", "aiter", "vllm", "flashinfer", "torch")}
    return times if any(us for name, us in times.items() if name != "kgen") else times | {"peer": row.get("peer_us")}


def gdn_times(level):
    return lambda row: {n: us for n, us in row[f"{level}_all"].items() if n in STYLES}


# kind -> (title of a panel, bytes of a row, times of a row), ...
PANELS = {
    "attn_bench": (("Paged attention", lambda row: row["kv_mb"] * 1e6, attn_times),),
    "gdn_bench": (("gates and recurrence", lambda row: row["a_mb"] * 1e6, gdn_times("a")),
                  ("whole step; of the peers all launches", lambda row: row["e_mb"] * 1e6, gdn_times("e"))),
    "kv_bench": (("Cache writes and gathers", lambda row: row["bytes"], lambda row: row["all"]),),
    "kgen bench": (("kgen bench", lambda row: row["bytes"],
                    lambda row: {row["spec"].split(":")[0]: row["us"]}),),
}


def points(report, size_of, times_of):
    """series -> [(bytes, TB/s), ...] in order of bytes"""
    series = {}
    for row in report["rows"]:
        if "error" in row:
            continue
        for name, us in times_of(row).items():
            if us:
                series.setdefault(name, []).append((size_of(row), size_of(row) / us / 1e6))
    order = [name for name in (*STYLES, *FAMILY_STYLES) if name in series]
    return {name: sorted(series[name]) for name in order + sorted(set(series) - set(order))}


# ---- what is said about a file ----------------------------------------------------


def few(values, what):
    """'bf16, fp8', or how many there are."""
    seen = list(dict.fromkeys(v for v in values if v not in (None, "")))
    return ", ".join(map(str, seen)) if len(seen) <= 4 else f"{len(seen)} {what}"


def gdn_shape(row):
    """heads, tp, state, tokens, batch of '16/32 tp1 f32 t4 b64'"""
    found = re.fullmatch(r"(\d+/\d+) tp(\d+) (\w+)(?: t(\d+))? b(\d+)", row["row"])
    if not found:
        raise PlotError(f"row '{row['row']}': not heads, tp, state and batch")
    heads, tp, state, tokens, batch = found.groups()
    return heads, int(tp), state, int(tokens or 1), int(batch)


def about_attn(rows):
    heads = few((f"{r['q_heads']}/{r['kv_heads']} heads of {r['dim']}" for r in rows), "kinds of heads")
    return f"{few((r['kv'] for r in rows), 'types')}, {heads}"


def about_gdn(rows):
    heads, tp, states = ([gdn_shape(row)[i] for row in rows] for i in (0, 1, 2))
    return f"states {few(states, 'types')}, heads {few(heads, 'kinds')}, tp {few(tp, 'widths')}"


def about_kv(rows):
    return "bf16 rows, 8 KV heads of 128, 64 query heads, pages of 16"


def about_bench(rows):
    good = [row for row in rows if "spec" in row]
    keys = [dict(item.split("=") for item in row["spec"].split(":", 1)[1].split("@")[0].split(",")) for row in good]
    types = few((k.get("kv") or k.get("state") or k.get("x") for k in keys), "types")
    heads = few((row["problem"]["heads"] for row in good if row.get("problem", {}).get("heads")), "kinds of")
    return ", ".join(filter(None, (types, heads and f"{heads} KV heads")))


ABOUT = {"attn_bench": about_attn, "gdn_bench": about_gdn, "kv_bench": about_kv, "kgen bench": about_bench}


def subtitle(report, rows=None):
    device = re.sub(r"\s*\(.*", "", str(report.get("device", "unknown device")))
    emulated = ", emulated: times mean nothing" if report.get("emulated") else ""
    return f"{device}{emulated} \N{MIDDLE DOT} {ABOUT[report['kind']](rows or report['rows'])}"


# ---- drawing ---------------------------------------------------------------------


def pyplot():
    try:
        import matplotlib
    except ImportError:
        raise PlotError("matplotlib is not installed: python3 -m pip install matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    plt.rcParams.update({
        "svg.hashsalt": SALT, "font.family": "DejaVu Sans", "font.size": 12, "axes.titlesize": 12,
        "axes.edgecolor": "#606060", "axes.labelcolor": "#303030", "text.color": "#202020",
        "xtick.color": "#404040", "ytick.color": "#404040", "axes.grid": True, "grid.color": "#E4E4E4",
        "axes.axisbelow": True, "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False})
    return plt


def new_figure(plt, panels, title, below, **named):
    figure, axes = plt.subplots(1, panels, figsize=(WIDTH, HEIGHT), squeeze=False, layout="constrained", **named)
    figure.suptitle(title, fontsize=16, fontweight="bold", x=0.01, ha="left")
    figure.get_layout_engine().set(rect=(0, 0, 1, 0.95))
    figure.text(0.01, 0.915, below, fontsize=11, color="#606060")
    return figure, list(axes[0])


def save(figure, plt, folder, name):
    for form in ("png", "svg"):
        path = folder / f"{name}.{form}"
        figure.savefig(path, dpi=DPI, metadata={"Date": None} if form == "svg" else {"Software": None})
        print(path)
    plt.close(figure)


def bytes_text(value, _=None):
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= factor:
            return f"{value / factor:g} {unit}"
    return f"{value:g} B"


def draw_limits(axis, report):
    for name, tb_s in limits(report).items():
        axis.axhline(tb_s, color="#404040", linewidth=1.2, linestyle={"read": "-", "copy": "--"}[name], zorder=1)
        axis.annotate(f"{name} {tb_s:.2f} TB/s", (0, tb_s), (4, 4), xycoords=("axes fraction", "data"),
                      textcoords="offset points", fontsize=10.5, color="#404040")


def draw_series(axis, series):
    """Ours above the others."""
    for name, values in reversed(series.items()):
        color, marker = {**STYLES, **FAMILY_STYLES}.get(name, STYLES["peer"])
        ours = name == "kgen"
        axis.plot(*zip(*values), linestyle="none", marker=marker, markersize=8 if ours else 6.5, color=color,
                  markeredgecolor=color if marker == "_" else "white", label=name,
                  markeredgewidth=1.8 if marker == "_" else 0.6,
                  alpha=1 if ours else 0.85, zorder=4 if ours else 3)


def roofline(plt, report, folder):
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
    panels = [(title, points(report, size, times)) for title, size, times in PANELS[report["kind"]]]
    panels = [(title, series) for title, series in panels if series]
    if not panels:
        raise PlotError(f"{report['name']}: no row has a time")
    what = "Gated DeltaNet" if report["kind"] == "gdn_bench" else panels[0][0]
    figure, axes = new_figure(plt, len(panels), f"{what}: bandwidth of a launch", subtitle(report), sharey=True)
    for axis, (title, series) in zip(axes, panels):
        draw_limits(axis, report)
        draw_series(axis, series)
        axis.set_xscale("log")
        low, high = axis.get_xlim()
        axis.xaxis.set_major_locator(LogLocator(subs=(1,) if high > 100 * low else (1, 2, 5), numticks=8))
        axis.xaxis.set_major_formatter(FuncFormatter(bytes_text))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel("bytes that a launch has to move")
        if len(panels) > 1:
            axis.set_title(title, loc="left")
        handles, labels = axis.get_legend_handles_labels()
        axis.legend(handles[::-1], labels[::-1], loc="lower right")
    axes[0].set_ylabel("achieved bandwidth, TB/s")
    axes[0].set_ylim(0)
    save(figure, plt, folder, f"{report['name']}_roofline")


# ---- the map ----------------------------------------------------------------------


def map_rows(report):
    """The rows of the kernel with the most cells of batch by context: {(batch, context): row}, or nothing."""
    groups = {}
    for row in report["rows"]:
        if row.get("context") and row.get("ratio"):
            kernel = tuple(row[n] for n in ("kv", "q_heads", "kv_heads", "dim", "page", "tokens", "window"))
            groups.setdefault(kernel, {})[row["batch"], row["context"]] = row
    cells = max(groups.values(), key=len, default={})
    wide = all(len({place[i] for place in cells}) > 1 for i in (0, 1))
    return cells if wide else {}


def count_text(n):
    return f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else str(n)


def fill_cells(axis, cells, batches, contexts, reach):
    for y, batch in enumerate(batches):
        for x, context in enumerate(contexts):
            row = cells.get((batch, context))
            if not row:
                axis.text(x, y, "not timed", ha="center", va="center", fontsize=9.5, color="#808080")
                continue
            strong = abs(math.log2(row["ratio"])) > 0.6 * reach
            color = "white" if strong else "#202020"
            how = dict(ha="center", va="center", color=color)
            axis.text(x, y + 0.12, f"{row['ratio']:.2f}", fontsize=14, fontweight="bold", **how)
            axis.text(x, y - 0.26, f"{row['kgen_us']:.0f} us, {row['peer_best']}", fontsize=8.5, **how)


def ratio_map(plt, report, folder):
    import numpy as np
    cells = map_rows(report)
    if not cells:
        return
    batches, contexts = (sorted({place[i] for place in cells}) for i in (0, 1))
    ratios = [[cells[b, c]["ratio"] if (b, c) in cells else np.nan for c in contexts] for b in batches]
    field = np.log2(np.array(ratios))
    reach = max(0.3, float(np.nanmax(np.abs(field))))
    figure, (axis,) = new_figure(plt, 1, "Paged attention: time of the best peer over kgen's",
                                 subtitle(report, list(cells.values())))
    colors = plt.get_cmap("RdBu").copy()
    colors.set_bad("#F0F0F0")
    image = axis.imshow(field, cmap=colors, vmin=-reach, vmax=reach, origin="lower", aspect="auto")
    fill_cells(axis, cells, batches, contexts, reach)
    axis.grid(False)
    axis.set_xticks(range(len(contexts)), map(count_text, contexts))
    axis.set_yticks(range(len(batches)), batches)
    axis.set_xlabel("context, tokens of a sequence")
    axis.set_ylabel("batch, sequences")
    draw_scale(figure, image, axis, reach)
    save(figure, plt, folder, f"{report['name']}_map")


def draw_scale(figure, image, axis, reach):
    """Ratios on a scale of logarithms: twice as fast is as far from 1 as half as fast."""
    marks = [m for m in (0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 4, 6) if abs(math.log2(m)) <= reach]
    bar = figure.colorbar(image, ax=axis, pad=0.02, aspect=30)
    bar.set_ticks([math.log2(m) for m in marks], labels=[f"{m:g}" for m in marks])
    bar.set_label(f"above 1 kgen is faster ({TIMES})")
    bar.outline.set_visible(False)


# ---- share of copy --------------------------------------------------------------------


def share_rows(report):
    """Rows of one token and of the file's first heads, at its narrowest and its widest tp; and those two."""
    first = gdn_shape(report["rows"][0])[0]
    rows = [row for row in report["rows"] if gdn_shape(row)[0] == first and gdn_shape(row)[3] == 1]
    widths = {gdn_shape(row)[1] for row in rows} or {1}
    ends = min(widths), max(widths)
    return [row for row in rows if gdn_shape(row)[1] in ends], ends


def share_lines(rows, level):
    """(state, tp) -> [(batch, kgen's share, the best peer's), ...]"""
    lines = {}
    for row in rows:
        _, tp, state, _, batch = gdn_shape(row)
        ours, ratio = row[f"{level}_share"], row[f"{level}_ratio"]
        if ours:
            lines.setdefault((state, tp), []).append((batch, ours, ours / ratio if ratio else None))
    return {key: sorted(lines[key]) for key in sorted(lines)}


def draw_share(axis, lines, ends):
    for (state, tp), values in lines.items():
        color, narrow = STATES.get(state, "#7F7F7F"), tp != ends[0]
        batches, ours, peers = zip(*values)
        axis.plot(batches, ours, color=color, marker="o", markersize=6, linewidth=2,
                  linestyle="--" if narrow else "-", label=f"kgen {state} tp {tp}")
        known = [(b, p) for b, p in zip(batches, peers) if p]
        if known:
            axis.plot(*zip(*known), color=color, marker="s" if narrow else "^", markersize=6, linestyle="none",
                      markerfacecolor="white", label=f"best peer {state} tp {tp}")


def share(plt, report, folder):
    from matplotlib.ticker import FixedLocator, PercentFormatter, ScalarFormatter
    rows, ends = share_rows(report)
    figure, axes = new_figure(plt, 2, "Gated DeltaNet: share of the copy bandwidth over the batch",
                              subtitle(report, rows), sharey=True)
    for axis, level, title in zip(axes, "ae", ("gates and recurrence", "whole step, one launch")):
        draw_share(axis, share_lines(rows, level), ends)
        axis.axhline(1, color="#404040", linewidth=1.2, linestyle="--", zorder=1)
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_locator(FixedLocator(sorted({gdn_shape(row)[4] for row in rows})))
        axis.xaxis.set_major_formatter(ScalarFormatter())
        axis.minorticks_off()
        axis.set_xlabel("batch, sequences of one token")
        axis.set_title(title, loc="left")
    axes[0].set_ylim(0, 1.08)
    axes[0].set_ylabel("of the copy bandwidth")
    axes[0].yaxis.set_major_formatter(PercentFormatter(1))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=10.5)
    save(figure, plt, folder, f"{report['name']}_share")


# ---- the command ------------------------------------------------------------------------

PICTURES = {"attn_bench": (roofline, ratio_map), "gdn_bench": (roofline, share), "kv_bench": (roofline,),
            "kgen bench": (roofline,)}


def draw(plt, report, folder):
    try:
        for picture in PICTURES[report["kind"]]:
            picture(plt, report, folder)
    except KeyError as error:
        raise PlotError(f"{report['name']}: a row has no field {error}") from None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("files", nargs="+", metavar="FILE.json")
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/plots", help="folder of the pictures (docs/plots)")
    options = p.parse_args()
    try:
        reports = [read(path) for path in options.files]
        plt = pyplot()
        options.out.mkdir(parents=True, exist_ok=True)
        for report in reports:
            draw(plt, report, options.out)
    except (PlotError, OSError) as error:
        print(f"plot: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
