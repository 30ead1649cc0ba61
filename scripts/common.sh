# shellcheck shell=bash
# Sourced by ./run: messages, failures, and the two steps that every command begins with.

bold="" plain=""
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then bold=$'\033[1m' plain=$'\033[0m'; fi
say() { printf '%s== %s%s\n' "$bold" "$*" "$plain"; }
note() { printf '   %s\n' "$*"; }

# die <what failed> <what to do>...
die() {
    printf '\nrun: %s\n' "$1" >&2
    shift
    (($# == 0)) || printf '     %s\n' "$@" >&2
    explained=1
    exit 1
}

on_exit() {
    local status=$?
    ((status == 0 || explained)) ||
        printf '\nrun: step "%s" failed (exit %d); what was printed above says more\n' \
            "$step" "$status" >&2
}
# Everything that a build and its tests need; two runs wait for each other.
setup() {
    mkdir -p "$build"
    exec 9>"$build/.setup.lock"
    flock -w 900 9 || die "setup: another run holds $build/.setup.lock" "wait for it, or end it"
    : >"$log"
    setup_packages
    setup_wanted
    setup_rocm
    setup_format
    exec 9>&-
    [[ -d $prefix ]] && export KGEN_ROCM_PREFIX=$prefix
    return 0
}

# build_tree <preset> <what to build...>
build_tree() {
    local tree=$1 dir=$build/$1 clang options
    shift
    step="build: $tree"
    clang=$(newest_clang)
    options=("-DKGEN_ROCM_PREFIX_DIR=$prefix" "-DKGEN_CLANG=$clang")
    [[ $tree == asan ]] && options+=("-DCMAKE_C_COMPILER=$clang")
    say "Building ($tree)"
    if ! { cmake -S "$root" -B "$dir" --preset "$tree" "${options[@]}" &&
        cmake --build "$dir" -j "$(nproc)" --target "$@"; } >"$build/$tree.log" 2>&1; then
        grep -E -A12 'error|warning|FAILED|CMake Error' "$build/$tree.log" | head -n 60 >&2 || true
        die "building $tree failed" "the whole output: $build/$tree.log"
    fi
}
