#!/usr/bin/env bash
# tune on the cpu device: rows, journal, resume after kill -9, candidates that are
# too slow, time that runs out, lists, simulation, the model.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
sanitized_only_in_full
spec='kv_write:d=64,waves=4,occ=2'
model=$configs/Llama-3.1-8B-Instruct.json
export KGEN_TUNING=$work/user/tuning.jsonl

# what is refused before anything is done
refuse 64 "nothing to tune" "$kgen" tune
refuse 64 "--budget 5x: a time such as" "$kgen" tune "$spec" --budget 5x
refuse 64 "--budget -1: a time such as" "$kgen" tune "$spec" --budget -1
refuse 64 "--budget nan: a time such as" "$kgen" tune "$spec" --budget nan
refuse 64 "--timeout: more than 0" "$kgen" tune "$spec" --timeout 0
refuse 64 "search=annealing: one of halving" "$kgen" tune "$spec" --search annealing
refuse 64 "batch=0: a number" "$kgen" tune "$spec" --problem batch=0
refuse 64 "--samples 5: a number 6 to" "$kgen" tune "$spec" --samples 5
refuse 64 "--arch: only with --predict" "$kgen" tune "$spec" --arch gfx942
refuse 64 "--predict: there is no --device" "$kgen" tune "$spec" --predict --device cpu:sm90
refuse 64 "--simulate: takes no kernels" "$kgen" tune "$spec" --simulate x
refuse 13 "no such file, and no spec line" "$kgen" tune nothing --dry-run --arch sm_90
refuse 2 "waves=77: out of bounds" "$kgen" tune kv_write:waves=77 --dry-run --arch sm_90
refuse 12 "gpu" "$kgen" tune "$spec" --device gpu:0
refuse 13 "journal" "$kgen" tune --simulate "$work/none"

# what there is to choose from: needs no device and no compiler
expect 0 "candidates of" "$kgen" tune "$spec" --dry-run --arch sm_90
[[ $(grep -c "(default)" "$work/.out") == 2 ]] || fail "not one default for each problem: $out"
[[ $(grep "^  kv_write" "$work/.out" | grep -v "(default)" | grep -vc "waves=4.*occ=2") == 0 ]] ||
    fail "candidates do not keep the keys of the spec: $out"
expect 0 "pruned" "$kgen" tune attn:d=128,g=8 --dry-run --arch sm_90 --problem batch=1,context=64
expect 0 '"considered"' "$kgen" tune "$spec" --dry-run --arch gfx942,sm_90 --json
expect 0 "attn:phase=decode" "$kgen" tune "$model" --tp 8 --dry-run --arch gfx942
[[ $out == *"heads=1"* ]] || fail "not the model's heads: $out"
printf '%s @sm_90\n%s @gfx942\n' "$spec" kv_write:d=128 >two.manifest
expect 0 "d=64" "$kgen" tune two.manifest --dry-run --arch sm_90
[[ $out != *"d=128"* ]] || fail "a line of another arch: $out"
[[ ! -e $KGEN_CACHE_DIR && ! -e $work/user ]] || fail "a dry run wrote something"

capture "$kgen" doctor
grep -E "^  cpu:sm90 +missing" "$work/.out" >/dev/null && { echo "skipped: no clang" && exit 77; }
tune=("$kgen" tune "$spec" --device cpu:sm90 --problem batch=8,heads=2 --samples 6)

# no time: everything stays as it is, and is named
expect 0 "1 unfinished" "${tune[@]}" --budget 0
[[ $out == *unfinished* && ! -e $KGEN_TUNING ]] || fail "no time, but: $out"

# a whole run: one row, in the user's file, that the library reads
expect 0 "0 unfinished, 0 failed" "${tune[@]}" --search exhaustive --seed 5
[[ $(wc -l <"$KGEN_TUNING") == 1 ]] || fail "not one row: $(cat "$KGEN_TUNING")"
grep -q '"device":"cpu:sm90"' "$KGEN_TUNING" || fail "no device: $(cat "$KGEN_TUNING")"
expect 0 "kv_write" "$kgen" tuning list
measured=$(grep -c '"event":"times"' "$KGEN_TUNING.journal")
((measured >= 6 * 3)) || fail "only $measured samples"
expect 0 "0 unfinished, 0 failed" "${tune[@]}" --search exhaustive --seed 5
[[ $(grep -c '"event":"times"' "$KGEN_TUNING.journal") == "$measured" ]] ||
    fail "what is known was measured again"

# what holds for a kernel is found once, whatever the number of problems
expect 0 "0 unfinished, 0 failed" "${tune[@]}" --problem batch=16,heads=2 --out "$work/two.jsonl"
[[ -z $(grep -o '"event":"verified","kernel":"[0-9a-f]*' "$work/two.jsonl.journal" | sort | uniq -d) ]] ||
    fail "a kernel was verified twice"

# the strategies on these times
expect 0 "exhaustive" "$kgen" tune --simulate "$KGEN_TUNING.journal"
[[ $out == *halving* && $out == *random* ]] || fail "simulate: $out"
expect 0 '"within_3_percent"' "$kgen" tune --simulate "$KGEN_TUNING.journal" --json

# kill -9 in the middle; the next run goes on from the journal
out_file=$work/killed.jsonl
again=("$kgen" tune "$spec" --device cpu:sm90 --problem batch=32,heads=2 --samples 100
    --search exhaustive --seed 5 --out "$out_file" --json)
"${again[@]}" >/dev/null 2>&1 &
run=$!
for ((i = 0; i < 600; i++)); do
    [[ -e $out_file.journal ]] && (($(grep -c '"event":"times"' "$out_file.journal") > 20)) && break
    sleep 0.05
done
kill -9 $run
wait $run 2>/dev/null || true
[[ ! -e $out_file ]] || fail "the run was over before it was killed"
before=$(grep -c '"event":"times"' "$out_file.journal")
verified=$(grep -c '"event":"verified"' "$out_file.journal")
expect 0 '"outcome": "' "${again[@]}"
after=$(grep -c '"event":"times"' "$out_file.journal")
candidates=$(sed -n 's/.*"candidates": \([0-9]*\).*/\1/p' "$work/.out")
((before > 20 && after == 100 * candidates)) || fail "$before, then $after of 100 x $candidates"
[[ $(grep -c '"event":"verified"' "$out_file.journal") == "$verified" ]] ||
    fail "what was verified is verified again"
[[ $(wc -l <"$out_file") == 1 ]] || fail "no row after the second run"

# nobody answers in a microsecond: all that hangs is left out, the run ends
expect 12 "no answer in 1e-06 s" "$kgen" tune "$spec" --device cpu:sm90 --timeout 0.000001 \
    --problem batch=8,heads=2 --out "$work/hung.jsonl"
[[ $out == *failed* && $out == *"own choice was dropped"* ]] || fail "hung: $out"
[[ ! -e $work/hung.jsonl ]] || fail "a row without a time"
grep -q '"reason":"hung"' "$work/hung.jsonl.journal" || fail "the journal knows of nothing hung"

# no device: predicted times, where AMD's compiler is
capture "$kgen" doctor
if grep -E "^  gfx942 +hiprtc" "$work/.out" >/dev/null; then
    expect 0 "prediction: " "$kgen" tune "$spec" --predict --arch gfx942 --out predicted.jsonl \
        --problem batch=64,heads=8
    [[ $errors == *"0 failed"* ]] || fail "prediction: $out$errors"
    grep -q '"device":"prediction"' predicted.jsonl || fail "no predicted row: $out"
    KGEN_TUNING=$work/predicted.jsonl expect 0 "1 " "$kgen" tuning check --layer user
fi
finish
