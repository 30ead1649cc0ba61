# shellcheck shell=bash
# Sourced by ./run: the formatter that lint asks for, of one version, from PyPI into the build folder.

format_version=$(<"$root/tests/lint/clang-format.version")

have_format() { [[ $("$build/tools/bin/clang-format" --version 2>/dev/null) == *" $format_version"* ]]; }

# Only the test `lint` needs it, and fails without: no reason to end a demo or a build.
setup_format() {
    step="setup: formatter"
    have_format && return
    say "Fetching clang-format $format_version from PyPI into the build folder"
    rm -rf "$build/tools"
    if ! { python3 -m venv "$build/tools" &&
        "$build/tools/bin/pip" install --disable-pip-version-check "clang-format==$format_version"; } >>"$log" 2>&1; then
        note "No clang-format: pip could not install it (see $log); the test \`lint\` will fail"
    fi
}
