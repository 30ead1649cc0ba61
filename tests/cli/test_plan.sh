#!/usr/bin/env bash
# Plans: table, JSON, manifest, standard input, folders.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
qwen=$configs/Qwen3.5-35B-A3B.json
line='attn:phase=decode,q=bf16,kv=bf16,d=256,g=8,page=1056,layout=nhd'
gdn='gdn:fuse=e,layout=flat,x=bf16,hk=16,hv=32,state=f32,sl=vk,pad=nonpos'

expect 0 "$line" "$kgen" plan "$qwen"
[[ $out == *"$gdn "* && $out == *"norm eps 1e-06"* ]] || fail "says nothing of Gated DeltaNet"
[[ $out == *"prefill"* ]] || fail "says nothing of prefill"
table=$out
expect 0 "$line" "$kgen" plan --model "$qwen" --engine vllm
[[ $out == "$table" ]] || fail "--model differs from MODEL"
mkdir folder && cp "$qwen" folder/config.json
expect 0 "$line" "$kgen" plan folder
expect 0 "page=1," "$kgen" plan "$qwen" --engine sglang
expect 0 "kv=fp8" "$kgen" plan "$qwen" --kv-dtype fp8
expect 0 "phase=verify,q=bf16,kv=bf16,d=256,g=8,t=4" "$kgen" plan "$qwen" --spec-width 3
expect 0 "t=4,varlen=1,index=spec,pad=nonpos,accept=1,save=slots" "$kgen" plan "$qwen" --spec-width 3
expect 0 "cl=ds,t=4,save=buffer" "$kgen" plan "$qwen" --spec-width 3 --engine sglang
expect 5 "not divisible by tp=32" "$kgen" plan "$qwen" --tp 32
# shellcheck disable=SC2016
capture bash -c '"$0" plan - <"$1"' "$kgen" "$qwen"
[[ $out == "$table" ]] || fail "standard input differs from the file"

expect 0 '"q_scale": 0.0883' "$kgen" plan --json "$qwen"
[[ $out == *'"norm_eps": '* ]] || fail "the JSON has no norm_eps"
expect 0 '"softmax_scale": 0.0625' "$kgen" plan --json "$qwen"
python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/.out" 2>/dev/null ||
    ! command -v python3 >/dev/null || fail "plan --json is not JSON"

expect 0 "" "$kgen" plan "$qwen" --arch gfx942,sm_90 -o qwen.manifest
[[ $(grep -vc '^#' qwen.manifest) == 10 ]] || fail "the manifest does not have ten jobs"
grep -qxF "kv_write:x=bf16,kv=bf16,d=256,page=1056,layout=nhd @sm_90" qwen.manifest || fail "the manifest has no kv_write"
grep -qxF "$gdn @sm_90" qwen.manifest || fail "the manifest has no $gdn @sm_90"
grep -qxF "$line @gfx942" qwen.manifest || fail "the manifest has no $line @gfx942"
cp qwen.manifest first.manifest
capture env LC_ALL=de_DE.UTF-8 "$kgen" plan "$qwen" --arch gfx942,sm_90 -o qwen.manifest
cmp -s qwen.manifest first.manifest || fail "the manifest differs in another locale"

# its lines are read back: the only one refused is the one that is wrong
{ cat qwen.manifest; echo "gdn:layout=neither"; } >bad.manifest
refuse 2 "layout=neither" "$kgen" build --manifest bad.manifest
(($(wc -l <bad.manifest) > 5)) || fail "the manifest was too short to show that"

for model in "$configs"/*.json; do
    [[ $model == *DeepSeek* ]] && continue
    words=attn:phase=decode
    [[ $model == *Kimi* ]] && words=gdn:fuse=e,layout=presplit
    for options in "--tp 2" "--kv-dtype fp8" "--spec-width 15" "--engine sglang --tp 4"; do
        # shellcheck disable=SC2086
        expect 0 "$words" "$kgen" plan "$model" $options
    done
done
finish
