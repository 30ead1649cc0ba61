#!/usr/bin/env bash
# `kgen check` on one cpu device, eager and captured: random specs over the
# whole grid, from a fresh seed that is printed, and cases of tests/cases.
# usage: test_check.sh <kgen> <device>
set -euo pipefail
kgen=${1:?usage: test_check.sh <kgen> <device>}
device=${2:?usage: test_check.sh <kgen> <device>}
cases=$(mktemp)
trap 'rm -f "$cases"' EXIT

# level, sanitizers: random specs, cases (a kernel takes 1 s, sanitized 4 s)
case ${KGEN_TEST_LEVEL:-normal}${KGEN_CPU_SANITIZE:-0} in
fast?) samples=2 count=4 ;;
normal0) samples=10 count=30 ;;
normal1) samples=4 count=8 ;;
full?) samples=80 count=100000 ;;
*) echo "KGEN_TEST_LEVEL=${KGEN_TEST_LEVEL:-}: fast, normal or full expected" && exit 1 ;;
esac
# A device takes the cases that fall to it today; together they see all kinds.
grep -E '^attn:' tests/cases/attn.txt | shuf -n "$count" >"$cases"

"$kgen" check --device "$device" --samples "$samples" --cases "$cases" --capture --jobs 1 --quiet
