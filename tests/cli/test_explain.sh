#!/usr/bin/env bash
# explain FAMILY --json: what a program needs to mirror specs and arguments, and
# the mirror of bench/ against the library and the C headers.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"

expect 0 '"shape": "[T][Hq][Dv]"' "$kgen" explain attn --json
[[ $out == *'"when": "sinks=1"'* && $out == *'"key": "page"'* ]] || fail "no conditions, no keys"
expect 0 '"tree_verify": {' "$kgen" explain scatter --json
expect 2 "family=nosuch: unknown; known are attn" "$kgen" explain nosuch --json
expect 0 '"reason": ' "$kgen" explain attn:d=128 --arch gfx942 --json
if command -v python3 > /dev/null && command -v cc > /dev/null; then
    KGEN=$kgen expect 0 "sizes and offsets compared with C" python3 "$here/../../bench/kgen_ctypes.py"
fi
finish
