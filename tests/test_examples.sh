#!/usr/bin/env bash
# What the examples say to arguments that they do not have, and to a device that is not there.
# usage: test_examples.sh <program> ...
set -uo pipefail
failed=0

refuses() { # <code> <text> <command...>
    local code=$1 text=$2 out got
    shift 2
    out=$("$@" 2>&1)
    got=$?
    [[ $got == "$code" && $out == *"$text"* ]] && return
    echo "$*: exit code $got, $code expected; \"$text\" expected in: $out"
    failed=1
}

for program in "$@"; do
    name=$(basename "$program")
    refuses 4 "usage: $name [--device NAME]" "$program" --devcie cpu:cdna3
    refuses 4 "usage: $name [--device NAME]" "$program" cpu:cdna3
    refuses 4 "usage: $name [--device NAME]" "$program" --device
    refuses 6 "cpu:none" "$program" --device cpu:none
done
exit $failed
