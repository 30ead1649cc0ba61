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
expect 0 "gfx1100 has no instructions for 8-bit floats: --kv-dtype i8" "$kgen" plan "$qwen" --kv-dtype fp8 --arch gfx942,gfx1100
[[ $out != *"gfx942 has no"* ]] || fail "a note on what converts 8-bit floats"
expect 0 "kv=i8" "$kgen" plan "$qwen" --kv-dtype i8 --arch gfx1100
expect 0 "kv=i8,d=256" "$kgen" plan "$qwen" --kv-dtype 8bit --arch gfx1100,gfx1030
[[ $errors == "kgen: note: --kv-dtype i8: gfx1100 has no instructions for 8-bit floats" ]] || fail "8bit: $errors"
expect 0 "kv=fp8,d=256" "$kgen" plan "$qwen" --kv-dtype 8bit --arch gfx942,gfx1201
expect 4 "--kv-dtype 8bit: fp8 for gfx942, i8 for gfx1100; an --arch at a time" "$kgen" plan "$qwen" --kv-dtype 8bit --arch gfx942,gfx1100
[[ $out != *"8-bit floats"* ]] || fail "a note on floats where the cache has integers"
expect 0 "kv=i8,d=256,g=8,page=2096,layout=nhd,descale=token" "$kgen" plan "$qwen" --kv-dtype i8
expect 0 "kv=i4,d=256,g=8,page=" "$kgen" plan "$qwen" --kv-dtype i4
[[ $out == *"kv_write:x=bf16,kv=i4,"*"scale=token"* ]] || fail "kv_write without the scales of tokens"
# what the engine passes, and what is asked for
expect 0 "layout=shuffle,descale=token" "$kgen" plan "$qwen" --layout shuffle --kv-dtype fp8
[[ $out == *"kv_write:"*"layout=shuffle,scale=token"* ]] || fail "kv_write with other scales than attention"
expect 0 "page=1056,layout=shuffle " "$kgen" plan "$qwen" --layout shuffle
expect 0 "layout=shuffle " "$kgen" plan "$qwen" --layout shuffle --kv-dtype fp8 --descale head
refuse 4 "descale: a cache of bf16 has no scales" "$kgen" plan "$qwen" --descale token
expect 0 "layout=nhd,table=i64" "$kgen" plan "$qwen" --table i64
expect 0 "layout=nhd,alibi=1" "$kgen" plan "$qwen" --alibi
expect 0 "phase=extend,q=bf16,kv=bf16,d=256,g=8,page=1056,layout=nhd,cascade=1" "$kgen" plan "$qwen" --cascade
expect 0 "x=fp16,hk=16,hv=32,state=bf16" "$kgen" plan "$qwen" --dtype fp16 --state-dtype bf16
expect 0 "op=page_table_requests" "$kgen" plan "$qwen" --engine sglang
expect 0 "op=draft_page_table" "$kgen" plan "$qwen" --engine sglang --spec-width 2
[[ $out != *draft_kv_indices* ]] || fail "plans lists that no kernel reads"
expect 5 "not divisible by tp=32" "$kgen" plan "$qwen" --tp 32
# shellcheck disable=SC2016
capture bash -c '"$0" plan - <"$1"' "$kgen" "$qwen"
[[ $out == "$table" ]] || fail "standard input differs from the file"

expect 0 '"q_scale": 0.0883' "$kgen" plan --json "$qwen"
[[ $out == *'"norm_eps": '* ]] || fail "the JSON has no norm_eps"
expect 0 '"softmax_scale": 0.0625' "$kgen" plan --json "$qwen"
python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/.out" 2>/dev/null ||
    ! command -v python3 >/dev/null || fail "plan --json is not JSON"

expect 0 '"layers": [' "$kgen" plan --json "$qwen"
python3 - "$work/.out" <<'PYTHON' || ! command -v python3 >/dev/null || fail "the map of layers"
import json, sys
plan = json.load(open(sys.argv[1]))
families = [[plan["kernels"][k]["spec"].split(":")[0] for k in layer["kernels"]] for layer in plan["layers"]]
assert [layer["kind"] for layer in plan["layers"]] == (["linear attention"] * 3 + ["attention"]) * 10
assert families == ([["gdn"]] * 3 + [["attn"] * 5 + ["attn_merge", "kv_write", "kv_gather"]]) * 10
PYTHON

# what is not known is refused by name, unless it is to be passed over
sed 's/"qwen3_5_moe_text"/"qwen9_text"/' "$qwen" >unknown.json
refuse 3 "model_type=qwen9_text is not known" "$kgen" plan unknown.json
sed 's/"attn_output_gate": true/"swa_kv_pattern": [1, 2]/' "$qwen" >field.json
refuse 3 "swa_kv_pattern: this version does not know" "$kgen" plan field.json
expect 0 "passed over: swa_kv_pattern" "$kgen" plan --assume dense field.json
refuse 64 "--assume sparse: one of nothing, dense" "$kgen" plan --assume sparse field.json
# prompts: the pieces that the engine merges, one launch over pages, or none
llama=$configs/Llama-3.1-8B-Instruct.json
expect 0 "attn_merge:x=bf16,d=128 " "$kgen" plan "$llama"
[[ $out != *"not covered"* ]] || fail "a dense model lacks something"
expect 0 "phase=extend" "$kgen" plan "$llama" --prompts extend
[[ $out != *phase=prefill* && $out != *attn_merge* && $out != *kv_gather* ]] || fail "--prompts extend has pieces"
expect 0 "phase=decode" "$kgen" plan "$llama" --prompts none
[[ $out != *phase=extend* && $out != *kv_gather* ]] || fail "--prompts none has kernels of prompts"
refuse 64 "--prompts all: one of engine, extend, none" "$kgen" plan "$llama" --prompts all
expect 0 "" "$kgen" plan "$qwen" --arch gfx942,sm_90 -o qwen.manifest
[[ $(grep -vc '^#' qwen.manifest) == 20 ]] || fail "the manifest does not have twenty jobs"
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
    words=attn:phase=decode
    [[ $model == *DeepSeek* ]] && words=mla:phase=decode
    [[ $model == *Kimi* ]] && words=gdn:fuse=e,layout=presplit
    for options in "--tp 2" "--kv-dtype fp8" "--spec-width 15" "--engine sglang --tp 4"; do
        # shellcheck disable=SC2086
        expect 0 "$words" "$kgen" plan "$model" $options
    done
done
# build and check say what a plan has no kernel for
kimi=$configs/Kimi-Linear-48B-A3B-Instruct.json
expect 0 "note: not covered: 20 of 27 layers are linear attention" "$kgen" check --model "$kimi" --device cpu:cdna3
expect 0 "note: not covered: 20 of 27 layers" "$kgen" build --model "$kimi" --arch cpu:cdna3 --no-variants --quiet

# The picture of README holds what a command prints, and is small; of one that fails there is none.
recording=$here/../../docs/recording.py
if command -v python3 >/dev/null; then
    one='kgen plan plan/configs/gpt-oss-120b.json --arch gfx942 && echo "<&>"'
    expect 0 "" python3 "$recording" "$kgen" picture.svg "$one"
    { echo "$ $one" && "$kgen" plan "$configs/gpt-oss-120b.json" --arch gfx942 && echo "<&>"; } | grep . >printed
    python3 - picture.svg >drawn <<'P' || fail "the picture is no XML"
import sys, xml.etree.ElementTree as tree
print("\n".join(e.text for e in tree.parse(sys.argv[1]).iter() if e.tag.endswith("}text")))
P
    cmp printed drawn || fail "the picture has another text"
    expect 1 "exit code 13: kgen plan none" python3 "$recording" "$kgen" none.svg "kgen plan none"
    [[ ! -e none.svg ]] || fail "a picture of a command that fails"
    (($(wc -c <"${recording%.py}.svg") < 30000)) || fail "the picture of README is large"
fi
finish
