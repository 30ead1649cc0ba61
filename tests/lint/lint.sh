#!/usr/bin/env bash
# The rules of CONVENTIONS.md: lint.py reads the text, the pinned clang-format its layout.
# usage: lint.sh <repository root>; exit code 1 if there are findings
#
# The formatter is KGEN_CLANG_FORMAT, or what `./run setup` put into the build folder.
# Without one this fails, and says how to get it.
set -euo pipefail
root=$(realpath "${1:?usage: lint.sh <repository root>}")
here=$(cd "$(dirname "$0")" && pwd)
version=$(<"$here/clang-format.version")
formatter=${KGEN_CLANG_FORMAT:-$root/build/tools/bin/clang-format}
failed=0

python3 "$here/lint.py" "$root" || failed=1

if [[ $("$formatter" --version 2>/dev/null) != *" $version"* ]]; then
    printf 'lint: no clang-format %s at %s: ./run setup fetches it, or set KGEN_CLANG_FORMAT\n' "$version" "$formatter"
    exit 1
fi
cd "$root"
mapfile -t files < <(find . -name build -prune -o -name .git -prune -o \
    \( -name '*.c' -o -name '*.h' -o -name '*.hip' \) -printf '%P\n' | LC_ALL=C sort)
if ! wrong=$("$formatter" --dry-run -Werror "${files[@]}" 2>&1); then
    sed -nE 's/^([^ :]+:[0-9]+):[0-9]+: error: .*/\1: clang-format writes this otherwise/p' <<<"$wrong"
    failed=1
fi
exit "$failed"
