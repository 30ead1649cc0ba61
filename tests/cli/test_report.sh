#!/usr/bin/env bash
# kgen report --predict: predictions from machine code, and what is refused.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
attn='attn:phase=decode,q=bf16,kv=bf16,d=64,g=4,page=16'

refuse 64 "only with --predict" "$kgen" report "$attn" --problem batch=1
refuse 64 "usage: kgen report" "$kgen" report --predict
for bad in "batch=0" "batch=-1" "batch=x" "batch=" "batch=99999999999" "batch=8;context=9" \
    "batch=1,batch=2" "batch=1," "batch" "batch =1" "tokens=4" "" ","; do
    refuse 64 "" "$kgen" report --predict --problem "$bad" "$attn"
    [[ $errors == *"batch"* || $errors == *"--problem"* ]] || fail "'$bad' is not named: $errors"
done
refuse 64 "batch=0: a number 1 to" "$kgen" report --predict --problem batch=0 "$attn"
refuse 64 "batch: given twice" "$kgen" report --predict --problem batch=1,batch=2 "$attn"
refuse 64 "batch=N,context=N,heads=N" "$kgen" report --predict --problem tokens=4 "$attn"
refuse 13 "nowhere" "$kgen" report --predict --manifest nowhere
printf '# nothing\n' >empty
refuse 4 "empty: no spec in it" "$kgen" report --predict --manifest empty

for wrong in "--object x a" "--predict --object x a" "--predict --object x --arch gfx942" \
    "--predict --object x --arch gfx942,gfx950 a"; do
    # shellcheck disable=SC2086
    refuse 64 "--object: with --predict, one --arch" "$kgen" report $wrong
done
refuse 13 "nowhere" "$kgen" report --predict --arch gfx942 --object nowhere a
printf 'no ELF' >text
refuse 8 "ELF header" "$kgen" report --predict --arch gfx942 --object text a

capture "$kgen" doctor
if ! grep -E '^  gfx942 +hiprtc' "$work/.out" >/dev/null; then
    ((failures == 0)) || finish
    echo "skipped the kernels: no hipRTC" && exit 77
fi

printf '%s\ngdn:layout=flat,fuse=a # a state\nscatter:op=kv_compact\n' "$attn" >two.manifest
expect 0 "attn on gfx942 with 304 CUs" "$kgen" report --predict --manifest two.manifest \
    --arch gfx942,gfx1201 --problem batch=1,context=8192,heads=8 --problem heads=8,batch=64,context=8192
[[ $out == *"gdn on gfx1201 with 64 CUs"* && $out == *"b64 c8192 h8"* ]] || fail "rows: $out"
[[ $out == *"not predicted: kg_kv_compact_p1_"*" @gfx942: scatter:op=kv_compact"* ]] ||
    fail "what is left out: $out"
[[ $(grep -c "kg_attn" <<<"$out") == 4 ]] || fail "not two problems of two architectures: $out"
awk '/kg_attn/ { if (last != "" && $1 == arch && $5 <= last) bad = 1; last = $5; arch = $1; n++ }
    END { exit bad || n != 4 }' "$work/.out" || fail "64 sequences are not slower than one: $out"

expect 0 '"instructions"' "$kgen" report --predict --json "$attn" --arch gfx942
if command -v python3 >/dev/null; then
    python3 - "$work/.out" <<'P' || fail "the JSON: $out"
import json, sys
for row in json.load(open(sys.argv[1])):
    turn = row["turn"]
    assert turn["loop"] and turn["matrix"] and turn["wide_loads"]
    assert row["us"] >= max(row["parts_us"][part] for part in ("memory", "valu", "matrix"))
    assert 0 < row["of_bandwidth"] < 1 and "304 CUs" in row["assumptions"]
P
fi
capture "$kgen" list --arch gfx942
read -r key own symbol < <(awk 'NR == 2 { print $1, $2, $NF }' "$work/.out")
expect 0 "" "$kgen" inspect "$key" -o code.bin
expect 0 "$symbol" "$kgen" report --predict --object code.bin --arch "$own" "$symbol"
expect 0 '"load_bytes"' "$kgen" report --predict --object code.bin --arch "$own" "$symbol" --json
expect 8 "nobody or .text is missing" "$kgen" report --predict --object code.bin --arch "$own" nobody
expect 8 "" "$kgen" report --predict --object code.bin --arch gfx950 "$symbol"
expect 4 "context=0: at least 1 for family attn" "$kgen" report --predict --problem batch=4,heads=1 \
    "$attn" --arch gfx942
expect 3 "do not follow from batch and context" "$kgen" report --predict scatter:op=kv_compact \
    --arch gfx942
finish
