#!/usr/bin/env bash
# check on the cpu device: specs, cases, samples, capture, seeds.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
capture "$kgen" doctor
grep -E "^  cpu:cdna3 +missing" "$work/.out" >/dev/null && { echo "skipped: no clang" && exit 77; }
spec='attn:phase=decode,d=64,g=4'
device=(--device cpu:cdna3)

expect 0 "1 passed, 0 failed" "$kgen" check "$spec" "${device[@]}"
expect 0 "seed 7;" "$kgen" check "$spec" "${device[@]}" --seed 7 -q
first=${out#*seed 7;}
expect 0 "seed 7;" "$kgen" check "$spec" "${device[@]}" --seed 7 -q
[[ ${out#*seed 7;} == "$first" ]] || fail "the same seed gives another error: $first / $out"
expect 0 "1 passed, 0 failed" "$kgen" check "$spec | lens=17,0,33 hkv=2" "${device[@]}" --capture
expect 0 "2 passed, 0 failed" "$kgen" check --samples 2 "${device[@]}"
[[ $out == *attn:* && $out == *gdn:* ]] || fail "samples are not of every family: $out"
expect 0 "2 passed, 0 failed" "$kgen" check --samples 2 --family gdn "${device[@]}"
[[ $out == *gdn:* && $out != *attn:* ]] || fail "--family gdn: $out"
expect 2 "kda" "$kgen" check --samples 2 --family kda "${device[@]}"
expect 64 "--family" "$kgen" check "$spec" --family gdn "${device[@]}"
recurrence='gdn:fuse=a,layout=flat,hk=1,hv=2,dk=64,dv=64'
expect 0 "1 passed, 0 failed" "$kgen" check "$recurrence" "${device[@]}"
expect 0 "1 passed, 0 failed" "$kgen" check "$recurrence,t=2,varlen=1 | lens=2,0,1 pads=1" \
    "${device[@]}" --capture
expect 4 "lens: 3..3" "$kgen" check "$recurrence,t=2,varlen=1 | lens=3" "${device[@]}"
expect 2 "layout" "$kgen" check 'gdn:hk=1,hv=2' "${device[@]}"
printf '# cases\n%s | lens=5\n  %s # alone\n' "$spec" "$spec" >two.txt
expect 0 "2 passed, 0 failed" "$kgen" check --cases two.txt "${device[@]}"
printf '\n%s lens=5\n' "$spec" >bad.txt
expect 2 "bad.txt:2: " "$kgen" check --cases bad.txt "${device[@]}"
expect 0 '"passed": 1' "$kgen" check --json "$spec" "${device[@]}"

# A driver that computes nothing, and one with which somebody captures all the time.
if ! grep -E "^  gfx942 +missing" <("$kgen" doctor) >/dev/null; then
    export KGEN_HIP_LIB
    KGEN_HIP_LIB=$(dirname "$kgen")/../tests/libmock_hip.so
    expect 15 "reproduce: kgen check 'scatter:op=draft_lens" "$kgen" check scatter:op=draft_lens --device hip:0
    MOCK_CAPTURES=1 expect 11 "(900)" "$kgen" check scatter:op=draft_lens --device hip:0
fi
finish
