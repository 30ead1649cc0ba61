#!/usr/bin/env bash
# libFuzzer on the readers of foreign bytes: run.sh FOLDER [RUNS [TARGET ...]]. FOLDER gets the
# build, what was found to be interesting, and findings; a finding goes to corpus/ once it is mended.
set -euo pipefail
folder=$(realpath -m "${1:?usage: $0 FOLDER [RUNS [TARGET ...]]}") runs=${2:-1000000}
shift $(($# < 2 ? $# : 2))
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
targets=("$@") && ((${#targets[@]})) || mapfile -t targets < <(ls "$here/corpus")
mkdir -p "$folder"
cmake -S "$here/../.." -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG='-O1 -g' \
    -DCMAKE_C_COMPILER="${KGEN_CLANG:-clang}" -DKGEN_SANITIZE=ON -DKGEN_FUZZ=ON -DKGEN_PYTHON=OFF >/dev/null
cmake --build "$folder/build" --target fuzz >/dev/null
for target in "${targets[@]}"; do
    mkdir -p "$folder/$target" "$folder/findings"
    KGEN_FUZZ_TARGET=$target "$folder/build/bin/fuzz" -runs="$runs" -max_len=40000 -timeout=20 -rss_limit_mb=2048 \
        -artifact_prefix="$folder/findings/$target-" "$folder/$target" "$here/corpus/$target" \
        >"$folder/$target.log" 2>&1 || { tail -n 30 "$folder/$target.log" && exit 1; }
    printf '%-8s %s\n' "$target" "$(grep -o 'Done .*' "$folder/$target.log")"
done
