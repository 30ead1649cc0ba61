#!/usr/bin/env bash
# Plans: table, JSON, manifest, standard input, folders.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
qwen=$models/Qwen3.5-35B-A3B.json
line='attn:phase=decode,q=bf16,kv=bf16,d=256,g=8,page=1056,layout=nhd'

expect 0 "$line" "$kgen" plan "$qwen"
[[ $out == *"30 of 40 layers are Gated DeltaNet"* ]] || fail "says nothing of Gated DeltaNet"
[[ $out == *"prefill"* ]] || fail "says nothing of prefill"
table=$out
expect 0 "$line" "$kgen" plan --model "$qwen" --engine vllm
[[ $out == "$table" ]] || fail "--model differs from MODEL"
mkdir folder && cp "$qwen" folder/config.json
expect 0 "$line" "$kgen" plan folder
expect 0 "page=1," "$kgen" plan "$qwen" --engine sglang
expect 0 "kv=fp8" "$kgen" plan "$qwen" --kv-dtype fp8
expect 0 "phase=verify,q=bf16,kv=bf16,d=256,g=8,t=4" "$kgen" plan "$qwen" --spec-width 3
# shellcheck disable=SC2016
capture bash -c '"$0" plan - <"$1"' "$kgen" "$qwen"
[[ $out == "$table" ]] || fail "standard input differs from the file"

expect 0 '"softmax_scale": 0.0625' "$kgen" plan --json "$qwen"
python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/.out" 2>/dev/null ||
    ! command -v python3 >/dev/null || fail "plan --json is not JSON"

expect 0 "" "$kgen" plan "$qwen" --arch gfx942,sm_90 -o qwen.manifest
[[ $(grep -vc '^#' qwen.manifest) == 2 ]] || fail "the manifest does not have two jobs"
grep -qxF "$line @gfx942" qwen.manifest || fail "the manifest has no $line @gfx942"
cp qwen.manifest first.manifest
capture env LC_ALL=de_DE.UTF-8 "$kgen" plan "$qwen" --arch gfx942,sm_90 -o qwen.manifest
cmp -s qwen.manifest first.manifest || fail "the manifest differs in another locale"

for model in "$models"/*.json; do
    [[ $model == *DeepSeek* ]] && continue
    for options in "--tp 2" "--kv-dtype fp8" "--spec-width 15" "--engine sglang --tp 4"; do
        # shellcheck disable=SC2086
        expect 0 "attn:phase=decode" "$kgen" plan "$model" $options
    done
done
finish
