#!/usr/bin/env bash
# Breaks each rule of lint.sh once in a scratch tree: every one must be caught.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

clean_tree() {
    rm -rf "$scratch/tree"
    mkdir -p "$scratch/tree"/{include/kgen,gen,cache,tuning,runtime,check,cli,examples}
    printf '#include <stddef.h>\n' >"$scratch/tree/include/kgen/spec.h"
    printf '#include <kgen/spec.h>\n#include <jansson.h>\n' >"$scratch/tree/gen/gen.h"
    printf '#include <sodium.h>\n' >"$scratch/tree/cache/cache.h"
    printf '#include "gen/gen.h"\n#include "cache/cache.h"\n' >"$scratch/tree/tuning/db.h"
    printf 'int b;\n' >"$scratch/tree/examples/decode.c"
    printf '#include "../tuning/db.h"\n#include <dlfcn.h>\n' >"$scratch/tree/runtime/run.h"
}

# expect <what> <text that lint.sh must print> <file> <content>
expect() {
    clean_tree
    printf '%b' "$4" >"$scratch/tree/$3"
    local out status=0
    out=$(bash "$here/lint.sh" "$scratch/tree" 2>&1) || status=$?
    if ((status == 1)) && [[ $out == *"$2"* ]]; then
        printf 'caught: %s\n' "$1"
    else
        printf 'NOT caught: %s (exit %d)\n%s\n' "$1" "$status" "$out"
        failed=1
    fi
}

clean_tree
bash "$here/lint.sh" "$scratch/tree" || { echo "a clean tree does not pass" && failed=1; }

lines=$(printf '    a();\\n%.0s' $(seq 60))
expect 'HIP header in gen' 'gen/a.c:1: <hip/hip_runtime.h>' gen/a.c '#include <hip/hip_runtime.h>\n'
expect 'CUDA header in cache' 'cache/a.c:2: <cuda.h>' cache/a.c '\n  # include <cuda.h>\n'
expect 'HSA header in a public header' 'include/kgen/a.h:1: <hsa/hsa.h>' include/kgen/a.h '#include <hsa/hsa.h>\n'
expect 'local file that is not there' '"hip_runtime.h" is not a file' gen/a.c '#include "hip_runtime.h"\n'
expect 'gen includes runtime' 'gen/ may not include "runtime/run.h"' gen/a.c '#include "runtime/run.h"\n'
expect 'gen includes cache by ..' 'gen/ may not include "../cache/cache.h"' gen/a.c '#include "../cache/cache.h"\n'
expect 'cli includes gen' 'cli/ may not include "gen/gen.h"' cli/a.c '#include "gen/gen.h"\n'
expect 'check includes runtime' 'check/ may not include "runtime/run.h"' check/a.c '#include "runtime/run.h"\n'
expect 'include of a macro' '#include of a macro' gen/a.c '#include GPU_HEADER\n'
expect 'function of 62 lines' 'cache/a.c:1: 62 lines' cache/a.c "static void f(void) {\n$lines}\n"
expect 'long signature' 'cache/a.c:1: 63 lines' cache/a.c "static void f(int a,\n              int b) {\n$lines}\n"
expect 'long function after a table' 'cache/a.c:4: 62 lines' cache/a.c \
    "static const int t[] = {\n    1,\n};\nvoid f(void) {\n$lines}\n"
# shellcheck disable=SC2016  # the quotes are Markdown's
expect 'program of README.md' 'README.md: its C program' README.md '```c\nint a;\n```\n'

clean_tree
printf '%b' "/* long: a table of calls */\nvoid f(void) {\n$lines}\n" >"$scratch/tree/cache/a.c"
bash "$here/lint.sh" "$scratch/tree" || { echo "a reason is not taken" && failed=1; }
exit "$failed"
