# shellcheck shell=bash disable=SC2034
# Shared by the tests of the command. Sourced with the program as $1.
# expect <code> <words on stdout or stderr> <command...>
set -euo pipefail
kgen=$(realpath "${1:?usage: $0 <kgen program>}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
configs=$here/../../plan/configs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export KGEN_CACHE_DIR=$work/cache
cd "$work"
ran=0 failures=0

# For scripts that wait for compilers: what they would show sanitized, unit tests show sooner.
sanitized_only_in_full() {
    [[ ${KGEN_CPU_SANITIZE:-0} == 0 || ${KGEN_TEST_LEVEL:-normal} == full ]] && return
    echo "only in ./run test --full"
    exit 77
}

fail() {
    printf 'FAIL: %s\n' "$*"
    failures=$((failures + 1))
}

# What a command printed with --json is as its schema says.
check_json() {
    while (($# > 1)) && [[ $1 != "$kgen" ]]; do shift; done
    (($# > 1)) && command -v python3 >/dev/null || return 0
    python3 "$here/schema.py" "$2" "$work/.out" >"$work/.schema" || fail "${*:2}: $(<"$work/.schema")"
}

# Runs a command; its exit code in $code, its output in $out and $errors.
capture() {
    code=0
    "$@" >"$work/.out" 2>"$work/.errors" </dev/null || code=$?
    out=$(tr -d '\0' <"$work/.out") errors=$(tr -d '\0' <"$work/.errors")
    ran=$((ran + 1))
    [[ ($code != 0 && ! $out =~ ^[{[]) || " $* " != *" --json "* || " $* " == *" --help "* ]] || check_json "$@"
}

expect() {
    local want=$1 words=$2
    shift 2
    capture "$@"
    [[ $code == "$want" ]] || fail "exit code $code, not $want: ${*:2} ($errors)"
    [[ $out$errors == *"$words"* ]] || fail "no '$words': ${*:2} ($out$errors)"
}

# A refusal: one line on stderr, nothing on stdout, no cache made.
refuse() {
    expect "$@"
    [[ $errors == "kgen: error: "* && $errors != *$'\n'* && -z $out ]] ||
        fail "not one clean error line: ${*:4} ($out$errors)"
    [[ $errors != *[^[:print:]]* ]] || fail "unprintable bytes: ${*:4}"
    [[ ! -e $KGEN_CACHE_DIR ]] || fail "made a cache: ${*:4}"
}

finish() {
    printf '%s: %d commands, %d failures\n' "$(basename "$0")" "$ran" "$failures"
    ((failures == 0 && ran > 0))
}
