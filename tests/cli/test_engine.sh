#!/usr/bin/env bash
# docs/engine.md says which spec line stands for a call of an engine: each one has to
# resolve, its tensors have to be arguments of its family, and what the page says is not
# offered has to be refused with that message.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
page=$here/../../docs/engine.md
include=$here/../../include/kgen
family='(attn|gdn|scatter|kv_write|kv_gather)'

# argument <spec line> <word>: scatter has arguments of its own for each op.
argument() {
    local op=ID
    [[ $1 =~ ^scatter:op=([a-z_]+) ]] && op=${BASH_REMATCH[1]}
    case $op:$2 in
    ID:*) grep -qE "^KGEN_(TENSOR\([A-Z_]+, +|NUMBER\()$2," "$include/${1%%:*}_args.def" ;;
    *:live | *:error) true ;;
    *) grep -qE "^KGEN_(TENSOR|NUMBER)\($op, $2," "$include/scatter_args.def" ;;
    esac
}

# "| call | `spec line` | `tensor`, `tensor` = what the engine calls it; ... |"
lines=0
while IFS='|' read -r _ _ line cell _; do
    line=$(tr -d '` ' <<<"$line")
    expect 0 "@gfx950" "$kgen" explain "$line"
    while read -r word; do
        argument "$line" "$word" || fail "$line: it has no argument $word"
    done < <(sed -E 's/= [^,;]*//g' <<<"$cell" | grep -oE '`[a-z_0-9]+`' | tr -d '`')
    lines=$((lines + 1))
done < <(sed '/^## Not offered/,$d' "$page" | grep -E "^\|[^|]*\| \`$family:")

# "| asked for | `spec line` | `message` |"
refusals=0
while IFS='|' read -r _ _ line message _; do
    message=$(sed -E 's/^ `//; s/` $//' <<<"$message")
    refuse 2 "kgen: error: $message" "$kgen" source "$(tr -d '` ' <<<"$line")"
    refusals=$((refusals + 1))
done < <(sed '1,/^## Not offered/d' "$page" | grep -E '^\|[^|]*\| `[a-z_]+:[^ ]*` \|')

# the program of the page
while read -r line; do
    expect 0 "@gfx950" "$kgen" explain "$line"
done < <(sed -n '/^```c$/,/^```$/p' "$page" | grep -oE "\"$family:[^\"]*\"" | tr -d '"')

((lines > 40 && refusals > 10)) || fail "$lines spec lines and $refusals refusals: the tables have another form"
finish
