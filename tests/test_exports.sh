#!/usr/bin/env bash
# libkgen exports what the public headers declare, and nothing else; it writes to
# no standard stream and ends no process.
# usage: test_exports.sh <libkgen.so>
set -euo pipefail
library=${1:?usage: test_exports.sh <libkgen.so>}
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

exported() { nm -D --defined-only "$1" | awk '{print $3}' | sort; }
# A declaration may go over several lines; its name is the first before a bracket.
declared() {
    cat "$@" | awk '/^KGEN_API/ {at = 1} at {text = text " " $0} at && /[(]/ {
        match(text, /kgen_[a-z0-9_]+[ ]*[(]/)
        print substr(text, RSTART, RLENGTH - 1); text = ""; at = 0}' | sort
}
writes() { nm -D --undefined-only "$1" |
    grep -owE 'stdout|stderr|printf|puts|putchar|perror|exit|_exit|abort|__printf_chk|__assert_fail'; }

declared "$here"/../include/kgen/*.h >"$scratch/declared"
exported "$library" >"$scratch/exported"
if ! diff "$scratch/declared" "$scratch/exported"; then
    echo "left: declared in include/kgen; right: exported by $library"
    exit 1
fi
[[ $(wc -l <"$scratch/declared") -gt 50 ]] || { echo "hardly any declaration was found" && exit 1; }
if writes "$library"; then
    echo "$library may not use these"
    exit 1
fi

# The same on a library that does it wrong.
cat >"$scratch/bad.c" <<'EOF'
#include <stdio.h>
void kgen__leaked(void) { fputs("text", stderr); }
EOF
cc -shared -fPIC "$scratch/bad.c" -o "$scratch/bad.so"
[[ $(exported "$scratch/bad.so") == *kgen__leaked* ]] || { echo "a leak is not seen" && exit 1; }
[[ $(writes "$scratch/bad.so") == stderr ]] || { echo "stderr is not seen" && exit 1; }
