#!/usr/bin/env bash
# docs/engine.md says which spec line stands for a call of an engine: each one has to
# resolve, its tensors have to be arguments of its family, and what the page says is not
# offered has to be refused with that message.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
page=$here/../../docs/engine.md
family='(attn|gdn|scatter|kv_write|kv_gather|attn_merge|mla|indexer)'

# "<launch> <argument>" a line; scatter has a launch for each op
for name in attn gdn scatter kv_write kv_gather attn_merge mla indexer; do
    "$kgen" explain "$name" --json | python3 -c '
import json, sys
for launch, holds in json.load(sys.stdin)["launches"].items():
    for argument in holds["tensors"] + holds["numbers"]:
        print(launch, argument["name"])'
done >arguments.txt

# argument <spec line> <word>
argument() {
    local launch=${1%%:*}
    [[ $1 =~ ^scatter:op=([a-z_]+) ]] && launch=${BASH_REMATCH[1]}
    grep -qx "$launch $2" arguments.txt
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
