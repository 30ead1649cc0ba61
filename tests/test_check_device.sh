#!/usr/bin/env bash
# `kgen check` on one cpu device, eager and captured: random specs over the
# whole grid, from a fresh seed that is printed, and cases of tests/cases.
# usage: test_check_device.sh <kgen> <device> stands|other
set -euo pipefail
usage="usage: test_check_device.sh <kgen> <device> stands|other"
kgen=${1:?$usage} device=${2:?$usage} role=${3:?$usage}
cases=$(mktemp)
trap 'rm -f "$cases"' EXIT

# level, sanitizers: random specs of all families, cases of each, and of those that found
# something (a kernel takes 1 s, sanitized 4 s, groups of waves twice that)
case ${KGEN_TEST_LEVEL:-normal}${KGEN_CPU_SANITIZE:-0} in
fast?) samples=4 count=4 found=100000 ;;
normal0) samples=5 count=3 found=5 ;;
normal1) samples=3 count=1 found=3 ;;
full?) samples=160 count=100000 found=100000 ;;
*) echo "KGEN_TEST_LEVEL=${KGEN_TEST_LEVEL:-}: fast, normal or full expected" && exit 1 ;;
esac
# Sanitized, a device of each kind stands for the others (tests/CMakeLists.txt).
if [[ ${KGEN_TEST_LEVEL:-normal}${KGEN_CPU_SANITIZE:-0} == normal1 && $role != stands ]]; then
    echo "only in ./run test --full"
    exit 77
fi
grep -vE '^(#|$)' tests/cases/found.txt | shuf -n "$found" >>"$cases"
# A device takes the cases that fall to it today; together they see all kinds.
for files in attn gdn scatter "kv attn_merge" "mla indexer"; do
    for name in $files; do
        grep -E "^$name[a-z_]*:" "tests/cases/$name.txt"
    done | shuf -n "$count" >>"$cases"
done
if [[ $device == *sm90 ]]; then # the only one with clusters of workgroups, and groups of waves
    cat tests/cases/{clusters,groups}.txt | grep -E '^[a-z_]+:' | shuf -n "$count" >>"$cases"
fi

"$kgen" check --device "$device" --samples "$samples" --cases "$cases" --capture --jobs 1 --quiet
