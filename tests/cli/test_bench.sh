#!/usr/bin/env bash
# bench: rows, problems and what is wrong with them; tables, JSON, CSV, host costs.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
sanitized_only_in_full
device=(--device cpu:cdna3)
spec='attn:d=64,g=4'

# wrong use
refuse 64 "nothing to time" "$kgen" bench
refuse 64 "--json or --csv" "$kgen" bench "$spec" --json --csv
refuse 64 "problem: batch=x: a number 1 to 2147483647" "$kgen" bench "$spec" --problem batch=x
refuse 64 "problem: batch=0: a number" "$kgen" bench "$spec" --problem batch=0
refuse 64 "problem: batch=-1: a number" "$kgen" bench "$spec" --problem batch=-1
refuse 64 "problem: heads=99999999999: a number" "$kgen" bench "$spec" --problem heads=99999999999
refuse 64 "problem: batch: given twice" "$kgen" bench "$spec" --problem batch=1,batch=2
refuse 64 "problem: 'seqs=1': batch=N,context=N,heads=N expected" "$kgen" bench "$spec" -p seqs=1
refuse 64 "problem: batch: a number" "$kgen" bench "$spec" -p batch
refuse 64 "problem: empty" "$kgen" bench "$spec" -p ,
refuse 64 "--budget 5x: a time above 0" "$kgen" bench "$spec" --budget 5x
refuse 64 "--budget 0: a time above 0" "$kgen" bench "$spec" --budget 0
refuse 64 "--budget -3s: a time above 0" "$kgen" bench "$spec" --budget -3s
refuse 64 "--budget nan: a time above 0" "$kgen" bench "$spec" --budget nan
refuse 64 "--cold 1Q: a size above 0" "$kgen" bench "$spec" --cold 1Q
refuse 64 "--samples 0: a number 1 to" "$kgen" bench "$spec" --samples 0

# rows
refuse 2 "d=5" "$kgen" bench 'attn:d=5'
refuse 2 "family=gemm" "$kgen" bench 'gemm:m=3'
refuse 2 "waves=77" "$kgen" bench "$spec" --tune waves=77
refuse 2 "given twice" "$kgen" bench "$spec" --tune d=64
refuse 4 "SPEC | PROBLEM expected" "$kgen" bench "$spec | batch=1 | more"
refuse 4 "problem: 'colour=1': batch=N" "$kgen" bench "$spec | colour=1"
refuse 13 "none.txt: cannot open" "$kgen" bench none.txt
refuse 4 "--rows zzz*: fits no row" "$kgen" bench "$spec" --rows 'zzz*'
rows_error() { # <code> <words> <line of the file>
    printf '# rows\n\ngood | %s | batch=1\n%s\n' "$spec" "$3" >rows.txt
    refuse "$1" "rows.txt:4: $2" "$kgen" bench rows.txt "${device[@]}"
}
rows_error 4 "row: NAME | SPEC | batch=N" "$spec"
rows_error 4 "row: NAME | SPEC | batch=N" "name | $spec"
rows_error 4 "row: NAME | SPEC | batch=N" " | $spec | batch=1"
rows_error 4 "row: NAME | SPEC | batch=N" "name | $spec | batch=1 | more"
rows_error 4 "row: no spec" "name | | batch=1"
rows_error 4 "problem: batch=: a number" "name | $spec | batch= context=3"
rows_error 4 "problem: empty" "name | $spec | "
rows_error 2 "d=5" "name | attn:d=5 | batch=1"
printf '# nothing\n' >empty.txt
refuse 4 "empty.txt: no row in it" "$kgen" bench empty.txt
printf 'a | %s | batch=1\0' "$spec" >binary.txt
refuse 4 "binary.txt: not a text file" "$kgen" bench binary.txt

capture "$kgen" doctor
grep -E "^  cpu:cdna3 +missing" "$work/.out" >/dev/null && { echo "skipped: no clang" && exit 77; }

# the rows of the repository are rows
expect 0 "cache-locs" "$kgen" bench "$here/../../bench/rows.txt" --rows 'cache-*' -n 1 "${device[@]}"

# what is timed
printf 'one | %s | batch=3 context=40 heads=2\n two | gdn:layout=flat,hk=1,hv=1,dk=64,dv=64 | batch=2 # small\n' \
    "$spec" >rows.txt
expect 0 "OF LIMIT" "$kgen" bench rows.txt -n 3 "${device[@]}"
[[ $out == *$'\none '* && $out == *$'\ntwo '* && $out == *"TB/s, copy "* ]] || fail "no two rows: $out"
[[ $errors == *"its times mean nothing"* ]] || fail "no word about the cpu device: $errors"
expect 0 "two " "$kgen" bench rows.txt -n 3 --rows 't*' --tune waves=1 --budget 1s "${device[@]}"
[[ $out != *$'\none '* ]] || fail "--rows t*: $out"

# holds <condition on d, the JSON that came out>; without Python it is taken as true
holds() {
    ! command -v python3 >/dev/null ||
        python3 -c "import json, sys; d = json.load(sys.stdin); sys.exit(not ($1))" <"$work/.out" ||
        fail "JSON: not $1: $out"
}
expect 0 '"rows"' "$kgen" bench rows.txt -n 5 --json "${device[@]}" --problem batch=1,context=20
holds 'd["arch"] == "cpu:cdna3" and d["emulated"] and [r["row"] for r in d["rows"]] == ["one", "two"]'
holds 'd["rows"][0]["problem"] == {"batch": 1, "context": 20, "heads": 1}'
holds 'all(r["best"] <= r["low"] <= r["us"] <= r["high"] and r["samples"] == 5 for r in d["rows"])'
holds 'all(abs(r["bytes"] / r["us"] * 1e-6 - r["tb_s"]) < 1e-9 for r in d["rows"])'
holds 'd["limits"]["read_tb_s"] > 0 and d["limits"]["copy_tb_s"] > 0'
expect 0 "row,batch,context" "$kgen" bench rows.txt -n 1 --csv -q "${device[@]}"
[[ $out == *$'\n"one",2,40,1,'*",\"attn:phase=decode,"* ]] || fail "CSV: $out"

# a row that cannot be timed does not stop the others
expect 3 "op=tree_build: no load" "$kgen" bench 'scatter:op=tree_build' rows.txt -n 1 "${device[@]}"
[[ $out == *$'\none '* && $out == *$'\ntwo '* ]] || fail "rows after a failed one: $out"
expect 14 "context=1000000" "$kgen" bench "$spec" -n 1 "${device[@]}" \
    --problem batch=1000000,context=1000000
expect 12 "" "$kgen" bench "$spec" --device cuda:99

# host costs leave nothing behind
mkdir scratch
before=$(find "$KGEN_CACHE_DIR" -type f | wc -l)
TMPDIR=$work/scratch expect 0 "RENDER US" "$kgen" bench rows.txt --host "${device[@]}"
[[ -z $(ls scratch) && $(find "$KGEN_CACHE_DIR" -type f | wc -l) == "$before" ]] || fail "--host left files"
TMPDIR=$work/scratch expect 0 '"first_us"' "$kgen" bench "$spec" --host --json "${device[@]}"
holds 'all(v > 0 for k, v in d["rows"][0].items() if k not in ("row", "launch_ns"))'
TMPDIR=$work/none expect 13 "cannot make a folder" "$kgen" bench "$spec" --host "${device[@]}"

# without a device, and whatever layers the caller has
KGEN_CACHE_LAYERS=$work/none KGEN_BUNDLE_KEY=x TMPDIR=$work/scratch expect 0 '"device": "none"' "$kgen" bench "$spec" --host --json --arch cpu:cdna3
holds 'all((v > 0) == (k in ("render_us", "cold_ms", "warm_us", "bundle_us", "signed_us", "memory_ns")) for k, v in d["rows"][0].items() if k != "row")'
[[ -z $(ls scratch) ]] || fail "--host --arch left files"
expect 64 "only with --host" "$kgen" bench "$spec" --arch cpu:cdna3

# one file for all budgets
if command -v python3 >/dev/null; then
    export KGEN=$kgen
    report=(python3 "$here/../../bench/report.py" --quick --out "$work/report.json")
    expect 0 "1.15 of attn-1x8k" "${report[@]}" "${device[@]}" --rows 'attn-*1x8k' --samples 1
    cp "$work/report.json" "$work/.out"
    holds "len(d['rows']) == 2 and len(d['budgets']) == 1 and d['peers'] and d['versions']['kgen'] and 'samples' in d['clocks']"
    expect 1 "no row fits 'zzz'" "${report[@]}" --rows zzz
    KGEN_HIP_LIB=none KGEN_CUDA_LIB=none expect 1 "no GPU that kgen can use" "${report[@]}"
fi
finish
