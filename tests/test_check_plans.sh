#!/usr/bin/env bash
# `kgen check` of the kernels that plans of plan/configs have, of both engines:
# as `--model` of one, and of the others each kernel once, on a cpu device.
# usage: test_check_plans.sh <kgen>
set -euo pipefail
kgen=${1:?usage: test_check_plans.sh <kgen>}
device=cpu:cdna3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# level, sanitizers: kernels beside those of the cache, which are all checked. Sanitized,
# prompts of the sizes that models have take minutes: check.<device> has small ones.
case ${KGEN_TEST_LEVEL:-normal}${KGEN_CPU_SANITIZE:-0} in
fast0) count=4 ;;
normal0) count=16 ;;
fast1 | normal1) count=0 ;;
full?) count=100000 ;;
*) echo "KGEN_TEST_LEVEL=${KGEN_TEST_LEVEL:-}: fast, normal or full expected" && exit 1 ;;
esac

for config in plan/configs/*.json; do
    for options in "" "--engine sglang --spec-width 3"; do
        # shellcheck disable=SC2086
        "$kgen" plan "$config" $options --arch "$device" -o "$work/one" >"$work/plan"
        grep -v '^#' "$work/one" >>"$work/all"
    done
done
sed 's/ @.*//' "$work/all" | sort -u >"$work/lines"
grep -E '^(kv_|attn_merge)' "$work/lines" >"$work/chosen"
((!count)) || grep -vE '^(kv_|attn_merge)' "$work/lines" | shuf -n "$count" >>"$work/chosen"
mapfile -t chosen <"$work/chosen"
echo "${#chosen[@]} of $(wc -l <"$work/lines") kernels"
"$kgen" check --device "$device" --jobs 2 --quiet "${chosen[@]}"
((count)) || exit 0
# full and sliding layers, decodes and prompts over pages
"$kgen" check --device "$device" --jobs 2 --quiet --model plan/configs/gemma-3-27b-it.json --prompts extend
