#!/usr/bin/env bash
# Help, wrong use, and that the documents list the exit codes of the table.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"

expect 64 "usage: kgen COMMAND" "$kgen"
expect 0 "usage: kgen COMMAND" "$kgen" help
expect 0 "usage: kgen COMMAND" "$kgen" --help
expect 0 "kgen 0." "$kgen" version
expect 0 "kgen 0." "$kgen" --version
manual=$(tr -d '\\' <"$here/../../docs/kgen.1")
for command in plan build list inspect source report explain tuning check tune bench prune pack merge unpack verify doctor; do
    expect 0 "usage: kgen $command" "$kgen" help "$command"
    expect 0 "usage: kgen $command" "$kgen" "$command" --help
    refuse 64 "--no-such-option" "$kgen" "$command" --no-such-option
    refuse 64 "-Z" "$kgen" "$command" -Z
    grep -q "^| \`$command" "$here/../../docs/command.md" || fail "docs/command.md: no $command"
    grep -q "^\.B[RI]* $command" "$here/../../docs/kgen.1" || fail "docs/kgen.1: no $command"
    for option in $("$kgen" help "$command" | grep -oE '^ +(-[A-Za-z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
        grep -qE -- "$option([^a-z-]|\$)" <<<"$manual" || fail "docs/kgen.1: no $option of $command"
    done
done

# Every variable that the command or the library reads is described.
root=$here/../..
variables=$(cat "$root"/{cache,cli,compile,device,runtime,tuning,tuner}/*.c "$root"/runtime/capture/*.c | grep -oE '"KGEN_[A-Z_]+"' |
    grep -oE 'KGEN_[A-Z_]+' | grep -vxE 'KGEN_(TRY|ROCM_PREFIX_DIR)' | sort -u)
(($(wc -l <<<"$variables") >= 20)) || fail "hardly a variable was found"
for name in $variables; do
    grep -qw "$name" "$root/docs/kgen.1" || fail "docs/kgen.1: no $name"
    grep -qwE "$name|KGEN_CAPTURE_\*" "$root/docs/command.md" || fail "docs/command.md: no $name"
done

refuse 64 "'frobnicate' is no command" "$kgen" frobnicate
refuse 64 "'frobnicate' is no command" "$kgen" help frobnicate
refuse 64 "'a?[31mb' is no command" "$kgen" $'a\033[31mb'
refuse 64 "one MODEL expected" "$kgen" plan
refuse 64 "one MODEL expected" "$kgen" plan a --model b
refuse 64 "usage: kgen plan" "$kgen" plan a b
refuse 64 "--tp: needs a value" "$kgen" plan --tp
refuse 64 "--tp x: a number 1 to 1024" "$kgen" plan --tp x m.json
refuse 64 "--tp 0: a number 1 to 1024" "$kgen" plan --tp 0 m.json
refuse 64 "--tp 99999999999999999999" "$kgen" plan --tp 99999999999999999999 m.json
refuse 64 "--tp : a number" "$kgen" plan --tp "" m.json
refuse 64 "--spec-width 16: a number 0 to 15" "$kgen" plan --spec-width 16 m.json
refuse 64 "--kv-dtype int4: one of auto, bf16" "$kgen" plan --kv-dtype int4 m.json
refuse 64 "--engine x: one of vllm, sglang" "$kgen" plan --engine x m.json
refuse 64 "--layout x: one of auto, nhd" "$kgen" plan --layout x m.json
refuse 64 "--cache-dir: must not be empty" "$kgen" list --cache-dir ""
refuse 64 "nothing to build" "$kgen" build
refuse 64 "nothing to check" "$kgen" check
refuse 64 "--seed -1" "$kgen" check --seed -1 attn:
refuse 64 "-j" "$kgen" build -j
refuse 64 "usage: kgen inspect" "$kgen" inspect
refuse 64 "usage: kgen source" "$kgen" source
refuse 64 "one --arch" "$kgen" source attn: --arch gfx942,gfx950
refuse 64 "usage: kgen report" "$kgen" report

# Completion has the commands and the options of the help.
bash_completes() { # the last word may be empty
    bash -c 'source "$0"; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _kgen; printf "%s\n" "${COMPREPLY[@]}"' \
        "$here/../../cli/kgen.bash" "$kgen" "$@"
}
zsh_completes() {
    zsh -f -c '_describe() { print -rl -- ${(P)2} }; _files() { : }; words=("$@") CURRENT=$#; source "$0"' \
        "$here/../../cli/_kgen" "$kgen" "$@"
}
shells=(bash) && if command -v zsh >/dev/null; then shells+=(zsh); fi
for shell in "${shells[@]}"; do
    expect 0 "prune" "${shell}_completes" ""
    expect 0 "--max-size" "${shell}_completes" prune --
    expect 0 "--manifest" "${shell}_completes" build --m
done
# The schema refuses what it should: a member that is missing, one too many, another type.
for bad in '{}' '{"entries": 1, "bytes": 1, "removed": 0, "removed_bytes": 0, "dry_run": true, "more": 1}' \
    '{"entries": "1", "bytes": 1, "removed": 0, "removed_bytes": 0, "dry_run": true}'; do
    expect 1 "kgen.prune" python3 "$here/schema.py" prune <(echo "$bad")
done

# The table of complaints names tests that there are.
named=$(sed -n '/^## What others/,$p' "$here/../../docs/cache.md" | grep '^|.*`' | cut -d'|' -f3 | grep -o '`[a-z0-9_]*`' | tr -d '`' | sort -u)
(($(wc -l <<<"$named") >= 40)) || fail "docs/cache.md: no table of complaints"
for name in $named; do
    grep -rqE "(void $name\(|^$name\(\))" "$here"/../unit/*.c "$here"/*.sh "$here"/../fuzz/*.[ch] || fail "docs/cache.md: no test $name"
done

codes=$(sed -n 's/^ *X(\([A-Z_]*\), "[^"]*", \([0-9]*\)).*/\2 KGEN_\1/p' \
    "$here/../../include/kgen/status.h")
[[ $(wc -l <<<"$codes") -ge 16 ]] || fail "the status table was not found"
while read -r number name; do
    grep -q "^| $number | .*\`$name\` |" "$here/../../docs/command.md" ||
        fail "docs/command.md: $number $name"
    grep -q "^$number	" "$here/../../docs/kgen.1" || fail "docs/kgen.1: $number"
done <<<"$codes"

# Each code is one that a test has seen the command end with, but for defects.
documented=$(sed -n '/^## Exit codes/,/^## Env/s/^| \([0-9][0-9]*\) | .*/\1/p' "$here/../../docs/command.md")
[[ $(wc -l <<<"$documented") -ge 17 ]] || fail "docs/command.md: no table of exit codes"
for number in $documented; do
    [[ $number == 16 ]] || grep -qE "^[^#]*(expect|refuse) $number " "$here"/test_*.sh || fail "exit code $number: no test"
done

expect 0 "values: decode, verify" "$kgen" explain
expect 0 "values: decode, verify" "$kgen" explain attn
expect 0 "values: interleaved, flat, presplit" "$kgen" explain gdn
refuse 2 "family=gnd: unknown; known are attn, gdn, scatter" "$kgen" explain gnd
# shellcheck disable=SC2016
capture bash -c '"$0" help >/dev/full' "$kgen"
[[ $code == 13 && $errors == *"standard output"* ]] || fail "a full disk is not noticed: $code"
finish
