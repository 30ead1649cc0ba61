# shellcheck shell=bash
# Sourced by ./run: what is installed, found and missing.

# Looks, installs nothing.
run_doctor() {
    local missing found
    mapfile -t missing < <(missing_packages)
    say "Packages"
    if ((${#missing[@]})); then
        note "missing: ${missing[*]}"
        note "./run setup installs them"
    else
        note "all there"
    fi
    say "ROCm"
    if found=$(system_rocm); then
        note "of this system: $found"
    elif prefix_works "$prefix"; then
        note "$prefix: $(grep -E '^lib(hiprtc|amd-comgr)' "$prefix/packages" | paste -sd' ')"
    else
        note "none; ./run setup fetches Debian's hipRTC into $prefix"
    fi
    say "Formatter"
    if have_format; then note "clang-format $format_version"; else note "none; ./run setup fetches clang-format $format_version"; fi
    say "kgen"
    if [[ -x $build/release/bin/kgen ]]; then
        step="kgen doctor"
        "$build/release/bin/kgen" doctor "$@"
    else
        note "not built yet; ./run setup builds it"
    fi
}
