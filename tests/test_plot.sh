#!/usr/bin/env bash
# bench/plot.py: its messages, and its pictures of small files that the benchmarks' own code made.
# usage: test_plot.sh; PYTHON names the interpreter
set -euo pipefail
bench=$(cd "$(dirname "$0")/../bench" && pwd)
python=${PYTHON:-python3}
command -v "$python" >/dev/null || { echo "skipped: no $python" && exit 77; }
export PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failures=0

fail() {
    printf 'FAIL: %s\n' "$*"
    failures=$((failures + 1))
}

# refuse <words> <arguments of plot.py>: exit code 1, one line on stderr, no picture
refuse() {
    local words=$1 code=0
    shift
    "$python" "$bench/plot.py" --out pictures "$@" >out 2>errors || code=$?
    [[ $code == 1 && ! -s out ]] || fail "exit code $code, output '$(<out)': $*"
    [[ $(<errors) == "plot: error: "*"$words"* && $(wc -l <errors) == 1 ]] ||
        fail "no '$words': $* ($(<errors))"
    [[ ! -e pictures ]] || fail "made pictures: $*"
}

cat >make.py <<'PYTHON'
import json
import sys

sys.path.insert(0, sys.argv[1])
import attn_bench
import gdn_bench


def write(name, device, rows, **more):
    with open(f"{name}.json", "w") as file:
        json.dump({"device": device, "rows": rows, **more}, file)


def attn(batch, context, ratio):
    times = {"kgen": [100.0], "aiter-3d": [100 * ratio], "vllm-2d": [100 * ratio + 1]}
    errors = {name: (0.001, 1.0) for name in times}
    return attn_bench.summary(attn_bench.Row(((batch, context),)), 4, times, errors, ["aiter-3d"], 4600)


def gdn(state, tp, batch):
    times = {(level, name): [us] for level in "ae" for name, us in (("kgen", 50.0), ("vllm", 60.0))}
    return gdn_bench.summary(gdn_bench.Row((16, 32), tp, state, batch), 8, times, 4200)


cells = [attn(1, 1024, 1.25), attn(1, 8192, 0.75), attn(8, 1024, 1.5)]  # one is missing
write("grid", "NVIDIA H200 (driver 580)", cells, read_gbs=4600, copy_gbs=4200)
write("net", "NVIDIA H200", [gdn(s, tp, b) for s in ("f32", "bf16") for tp in (1, 8) for b in (1, 64)], copy_gbs=4200)
write("caches", "NVIDIA H200", [{"row": "write nhd copy t1", "bytes": 1e6, "of_copy": 0.9,
                                 "all": {"kgen": 2.0, "vllm": 3.0, "copy": 1.8}}])
write("command", "NVIDIA H200", [
    {"row": "a", "spec": "attn:phase=decode,q=bf16,kv=bf16,d=128,g=8", "us": 9.0, "bytes": 1e7, "of_limit": 0.5,
     "problem": {"batch": 1, "context": 1024, "heads": 8}}, {"row": "b", "error": "no memory"}],
      limits={"read_tb_s": 4.6, "copy_tb_s": 4.2})
write("older", "NVIDIA H200", [{"row": "x", "kv_mb": 1.0, "kgen_us": 1.0}])
write("empty", "NVIDIA H200", [])
write("others", "NVIDIA H200", [{"row": "prepare p16 b1", "delta_us": 2.5}])
PYTHON
"$python" make.py "$bench"

# ---- messages -------------------------------------------------------------------
refuse "none.json: No such file" none.json
printf '{"rows": [' >broken.json
refuse "broken.json: not JSON: " broken.json
printf '[1, 2]' >list.json
refuse "list.json: no list of rows" list.json
refuse "empty.json: no rows" grid.json empty.json
refuse "others.json: its rows are not those of attn_bench, gdn_bench, kv_bench, kgen bench" others.json
mkdir without
echo 'raise ImportError("hidden")' >without/matplotlib.py
PYTHONPATH=without refuse "matplotlib is not installed: python3 -m pip install matplotlib" grid.json

"$python" "$bench/attn_bench.py" --grid --list >list
[[ $(wc -l <list) == 40 && $(grep -c "128x64k" list) == 1 ]] || fail "the map has not 40 rows"

# ---- pictures --------------------------------------------------------------------
"$python" -c 'import matplotlib' 2>/dev/null || {
    ((failures)) && exit 1
    echo "skipped: no matplotlib"
    exit 77
}
files=(grid.json net.json caches.json command.json)
"$python" "$bench/plot.py" "${files[@]}" --out first >printed
"$python" "$bench/plot.py" grid.json --out second >/dev/null
names=(caches_roofline command_roofline grid_map grid_roofline net_roofline net_share)
[[ $(cd first && ls ./*.svg) == "$(printf './%s.svg\n' "${names[@]}")" ]] || fail "pictures: $(ls first)"
for name in "${names[@]}"; do
    grep -qx "first/$name.png" printed || fail "$name.png is not named"
    [[ $(head -c 4 "first/$name.png" | tail -c 3) == PNG ]] || fail "$name.png is no PNG"
    grep -q '<!-- NVIDIA H200 · ' "first/$name.svg" || fail "$name does not name the device"
    ! grep -q '<dc:date>' "first/$name.svg" || fail "$name holds a date"
done
for name in grid_map grid_roofline; do
    cmp "first/$name.svg" "second/$name.svg" || fail "$name.svg differs from run to run"
done
for text in 1.25 0.75 1.50 'not timed' '100 us, aiter-3d' 'NVIDIA H200 · bf16, 64/8 heads of 128'; do
    grep -qF "<!-- $text -->" first/grid_map.svg || fail "no '$text' in the map"
done
for text in 'read 4.60 TB/s' 'copy 4.20 TB/s' kgen aiter vllm 'achieved bandwidth, TB/s'; do
    grep -qF "<!-- $text -->" first/grid_roofline.svg || fail "no '$text' in the roofline"
done
for text in 'kgen f32 tp 1' 'best peer bf16 tp 8' 'gates and recurrence'; do
    grep -qF "<!-- $text -->" first/net_share.svg || fail "no '$text' in the shares"
done
refuse_fields=$("$python" "$bench/plot.py" older.json --out third 2>&1) && fail "took rows without shapes"
[[ $refuse_fields == "plot: error: older: a row has no field "* ]] || fail "older: $refuse_fields"

printf 'test_plot.sh: %d failures\n' "$failures"
((failures == 0))
