#!/usr/bin/env bash
# Captures from the environment, and check --replay.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
capture "$kgen" doctor
grep -E "^  cpu:cdna3 +missing" "$work/.out" >/dev/null && { echo "skipped: no clang" && exit 77; }
device=(--device cpu:cdna3)
case='attn:phase=decode,d=64,g=4 | lens=40,9 hkv=2 packed=1'
mkdir saved gather

expect 0 "captured saved/kg_attn_decode" env KGEN_CAPTURE='kg_attn_*' KGEN_CAPTURE_DIR=saved \
    "$kgen" check "$case" "${device[@]}"
files=(saved/*.kgcap)
[[ ${#files[@]} == 1 && -f ${files[0]} ]] || fail "not one file: ${files[*]}"
[[ $(stat -c %a "${files[0]}") == 600 ]] || fail "others can read it"
file=${files[0]}

expect 0 "ok    the captured bits" "$kgen" check --replay "$file" "${device[@]}"
[[ $out == *"attn:phase=decode,q=bf16"* && $out == *"1 passed, 0 failed"* ]] || fail "says: $out"
expect 0 "2 passed, 0 failed" "$kgen" check --device cpu:sm90 -q --replay "$file" "$file"
expect 0 '"same_bits": true' "$kgen" check --json --replay "$file" "${device[@]}"
expect 0 "1 passed, 0 failed" "$kgen" check --replay "$file" "${device[@]}" --keep-tuning

# tuned on the captured tensors, of a family with few candidates: a row for the launch's own size, found by a look-up of it
export KGEN_TUNING=$work/tuning.jsonl
gather='kv_gather:d=64'
expect 0 "captured gather/kg_kv_gather" env KGEN_CAPTURE='kg_kv_gather*' KGEN_CAPTURE_DIR=gather \
    "$kgen" check "$gather | lens=40,9 hkv=2" "${device[@]}"
expect 0 "0 unfinished, 0 failed" "$kgen" tune --replay gather/*.kgcap --device cpu:sm90 --samples 6 --seed 3
grep -q '"problem":{"batch":49,"context":0,"heads":2}' "$KGEN_TUNING" || fail "no row of 49: $(cat "$KGEN_TUNING")"
[[ -s $(echo gather/*.journal) ]] || fail "no journal beside the capture"
expect 0 "cpu:sm90" "$kgen" explain "$gather" --problem batch=49,heads=2 --arch cpu:sm90 --device cpu:sm90
expect 64 "--replay: a captured launch" "$kgen" tune --replay "$file" --problem batch=1 --device cpu:sm90
expect 13 "no capture" "$kgen" tune --replay "$here/common.sh" --device cpu:sm90

# one byte somewhere, and half of it
cp "$file" damaged.kgcap
at=$((RANDOM % $(stat -c %s "$file")))
byte=$(od -An -tu1 -j "$at" -N 1 "$file")
printf '%b' "\\x$(printf %x $(((byte + 1) % 256)))" |
    dd of=damaged.kgcap bs=1 seek="$at" conv=notrunc status=none
expect 13 "damaged.kgcap" "$kgen" check --replay damaged.kgcap "${device[@]}"
head -c 300 "$file" >half.kgcap
expect 13 "half.kgcap" "$kgen" check --replay half.kgcap "${device[@]}"
expect 13 "1 passed, 1 failed" "$kgen" check --replay half.kgcap "$file" "${device[@]}"
expect 13 "no capture" "$kgen" check --replay "$here/common.sh" "${device[@]}"
expect 13 "nowhere" "$kgen" check --replay nowhere "${device[@]}"

expect 64 "no file" "$kgen" check --replay "${device[@]}"
expect 64 "--replay" "$kgen" check --replay "$file" --samples 2
expect 64 "--keep-tuning" "$kgen" check "$case" --keep-tuning "${device[@]}"
expect 4 "KGEN_CAPTURE_MAX=x" env KGEN_CAPTURE='*' KGEN_CAPTURE_MAX=x \
    "$kgen" check "$case" "${device[@]}"
expect 0 "1 passed" env KGEN_CAPTURE='kg_gdn_*' KGEN_CAPTURE_DIR=saved \
    "$kgen" check "$case" "${device[@]}"
files=(saved/*.kgcap)
[[ ${#files[@]} == 1 ]] || fail "captured what was not asked for: ${files[*]}"
finish
