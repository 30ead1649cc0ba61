#!/usr/bin/env bash
# Bad input: the documented exit code, one clear line, nothing changed.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
good='attn:phase=decode,d=128,g=8'

# spec lines
refuse 2 "colour=red" "$kgen" build 'attn:colour=red'
refuse 2 "phase=prefill" "$kgen" source 'attn:phase=prefill'
refuse 2 "d=100: out of bounds; nearest is 96" "$kgen" build 'attn:d=100'
refuse 2 "page=17: out of bounds; nearest is 16" "$kgen" report 'attn:page=17'
refuse 2 "d=128: given twice" "$kgen" build 'attn:d=128,d=128'
refuse 2 "family=gemm" "$kgen" build 'gemm:m=3'
refuse 2 "family=" "$kgen" build ''
refuse 2 "byte 0 is 0x1b" "$kgen" source $'\033[31m'
refuse 2 "bytes" "$kgen" source "attn:$(printf 'd=128,%.0s' {1..200})"
refuse 2 "t=4" "$kgen" build 'attn:phase=decode,t=4'
refuse 2 "colour" "$kgen" build "$good" 'attn:colour=1'
refuse 4 "lens=" "$kgen" check 'attn:d=128|seqs=2 lens=' --device cpu:cdna3

# architectures
refuse 6 "arch=gfx000: unknown; known are gfx908, gfx90a, gfx942" "$kgen" build "$good" --arch gfx942,gfx000
refuse 6 "arch=: unknown" "$kgen" build "$good" --arch gfx942,
refuse 6 "arch=gfx1: unknown" "$kgen" build "$good@gfx1"
refuse 6 "arch=gfx1: unknown" "$kgen" source "$good" --arch gfx1

# model configs
refuse 13 "none.json: cannot open" "$kgen" plan none.json
refuse 13 "config.json: cannot open" "$kgen" plan .
refuse 5 "not valid JSON" "$kgen" plan /dev/null
printf '{"model_type":"llama","num_hidden_layers":"\033[31m"' >bad.json
refuse 5 "bad.json: not valid JSON" "$kgen" plan bad.json
head -c 4194305 /dev/zero | tr '\0' ' ' >huge.json
refuse 5 "more than 4194304 bytes" "$kgen" plan huge.json
refuse 5 "more than 4194304 bytes" "$kgen" build --model huge.json
head -c 100000 /dev/zero | tr '\0' '[' >deep.json
refuse 5 "not valid JSON" "$kgen" plan deep.json
sed 's/"num_attention_heads": 64/"num_attention_heads": -3/' "$configs/Llama-3.1-70B-Instruct.json" >neg.json
refuse 5 "num_attention_heads=-3: must be 1 to 1024" "$kgen" plan neg.json
refuse 5 "num_attention_heads=64: not divisible by tp=3" "$kgen" plan --tp 3 \
    "$configs/Llama-3.1-70B-Instruct.json"
refuse 4 "page=17: must be 1, 2, 4, 8 or a multiple of 16; nearest is 16" "$kgen" plan --page-size 17 \
    "$configs/Llama-3.1-70B-Instruct.json"
sed 's/deepseek_v3/deepseek_v32/' "$configs/DeepSeek-V3.json" >sparse.json
refuse 3 "sparse attention" "$kgen" plan sparse.json
refuse 3 "sparse attention" "$kgen" build --model sparse.json

# manifests
printf '# fine\n\n%s @gfx942\nattn:d=5 @gfx942\n' "$good" >bad.manifest
refuse 2 "bad.manifest:4: d=5" "$kgen" build --manifest bad.manifest
printf '%s @gfx7\n' "$good" >arch.manifest
refuse 6 "arch.manifest:1: arch=gfx7" "$kgen" build --manifest arch.manifest
printf '%s\0' "$good" >binary.manifest
refuse 2 "binary.manifest: not a text file" "$kgen" build --manifest binary.manifest
printf '# nothing\n' >empty.manifest
refuse 3 "nothing to build" "$kgen" build --manifest empty.manifest
refuse 13 "none.manifest: cannot open" "$kgen" build --manifest none.manifest
refuse 13 "cannot write" "$kgen" plan "$configs/Llama-3.1-70B-Instruct.json" -o /none/manifest

# keys
refuse 4 "zz: 4 to 64 hex digits" "$kgen" inspect zz
refuse 4 "zz: hex digits" "$kgen" list zz
refuse 10 "abcd1234: no entry has this key" "$kgen" inspect abcd1234
refuse 10 "abcd1234: no entry has this key" "$kgen" source abcd1234

# a cache that cannot be written, a case file that is not there, no such device
: >file
refuse 13 "cache" "$kgen" build "$good" --arch cpu:cdna3 --cache-dir "$PWD/file/cache"
refuse 13 "none.txt" "$kgen" check --cases none.txt --device cpu:cdna3
refuse 12 "" "$kgen" check "$good" --device hip:99
finish
