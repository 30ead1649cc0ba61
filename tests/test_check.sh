#!/usr/bin/env bash
# `kgen check` on one cpu device: random specs over the whole grid, from a
# fresh printed seed, with eager launches and captured graphs; and the cases.
# usage: test_check.sh <kgen> <device>
set -euo pipefail
kgen=${1:?usage: test_check.sh <kgen> <device>}
device=${2:?usage: test_check.sh <kgen> <device>}

case ${KGEN_TEST_LEVEL:-normal} in
fast) samples=2 cases=() ;;
normal) samples=10 cases=() ;;
full) samples=80 cases=(--cases tests/cases/attn.txt) ;;
*) echo "KGEN_TEST_LEVEL=$KGEN_TEST_LEVEL: fast, normal or full expected" && exit 1 ;;
esac
# One device runs the cases at every level.
[[ $device == cpu:cdna3 ]] && cases=(--cases tests/cases/attn.txt)

"$kgen" check --device "$device" --samples "$samples" "${cases[@]}" --capture --jobs 1 --quiet
