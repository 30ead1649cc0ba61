# shellcheck shell=bash
# Sourced behind common.sh: a compiler that is a script. It keeps what clang made of a text and
# gives it again, so no kernel is compiled twice, and it counts its runs.
clang=${KGEN_CLANG:-clang}
command -v "$clang" >/dev/null || { echo "skipped: no clang" && exit 77; }
clang=$(command -v "$clang")
export TMPDIR=$work/tmp
mkdir "$TMPDIR" "$work/objects"

# fake NAME [LINE]: a compiler that counts its runs in runs.NAME, then does LINE.
fake() {
    cat >"$work/$1" <<SCRIPT
#!/bin/bash
# $1
[[ "\$*" != *--version* ]] || { echo "clang version 19.1.7 (fake)"; exit 0; }
echo run >>"$work/runs.$1"
env >"$work/env.$1"
${2:-:}
out= && for ((i = 1; i < \$#; i++)); do
    [[ \${!i} != -o ]] || { j=\$((i + 1)) && out=\${!j}; }
done
kept="$work/objects/\$(sha256sum <"\${!#}" | cut -c 1-32)"
[[ -s \$kept ]] || { "$clang" "\$@" && cp "\$out" "\$kept.\$\$" && mv "\$kept.\$\$" "\$kept" || exit 1; }
cp "\$kept" "\$out"
SCRIPT
    chmod +x "$work/$1"
    export KGEN_CLANG=$work/$1
    : >"$work/runs.$1"
}
runs() { wc -l <"$work/runs.$1"; }
# await COMMAND...: until it holds, for a minute at most.
await() {
    local end=$((SECONDS + 60))
    until "$@"; do
        ((SECONDS < end)) || { fail "never: $*" && return 1; }
        sleep 0.05
    done
}
has_run() { [[ $(runs "$1") == "$2" ]]; }
fresh() {
    KGEN_CACHE_DIR=$work/cache.$((++caches))
    export KGEN_CACHE_DIR
}
caches=0
