#!/usr/bin/env bash
# Carries out packaging/Containerfile in clean Debian roots, without a container engine.
#
#   sudo check.sh FOLDER WORK    FOLDER has the package and a config.json; WORK gets a root a stage
#
# Needs root, debootstrap and a network. Of the file it knows what stands there: FROM, ARG, COPY, RUN, ENV.
set -euo pipefail
folder=$(realpath "${1:?usage: $0 FOLDER WORK}") work=$(realpath -m "${2:?usage: $0 FOLDER WORK}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
declare -A stages
declare -a variables=()
root='' count=0
mkdir -p "$work"
[[ -d $work/base ]] || debootstrap --variant=minbase bookworm "$work/base" >"$work/debootstrap.log"
leave() {
    local at
    for at in "$work"/stage.*/proc; do ! mountpoint -q "$at" || umount "$at"; done
}
trap leave EXIT

within() { # runs a shell's line in the root, with what ENV and ARG have said
    chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
        "${variables[@]}" sh -c "$1" </dev/null
}

start_stage() { # IMAGE [as NAME]
    root=$work/stage.$((++count)) variables=()
    ! mountpoint -q "$root/proc" || umount "$root/proc"
    rm -rf "$root"
    cp -a "$work/base" "$root"
    cp /etc/resolv.conf "$root/etc/"
    mount -t proc proc "$root/proc"
    [[ -z ${3:-} ]] || stages[$3]=$root
}

copy() { # [--from=STAGE] FILE... FOLDER
    local from=$folder to=${*: -1} file
    [[ $1 != --from=* ]] || { from=${stages[${1#--from=}]} && shift; }
    mkdir -p "$root$to"
    for file in "${@:1:$#-1}"; do
        # shellcheck disable=SC2086  # a pattern
        cp -r "$from"/$file "$root$to"
    done
}

while read -r word rest; do
    [[ -n $word && $word != "#"* ]] || continue
    printf '%s %s\n' "$word" "$rest"
    read -ra words <<<"$rest"
    case $word in
    FROM) start_stage "${words[@]}" ;;
    ARG) name=${rest%%=*} && variables+=("$name=${!name-${rest#*=}}") ;;
    ENV) variables+=("$rest") ;;
    COPY) copy "${words[@]}" ;;
    RUN) within "$rest" >"$work/log" 2>&1 || { tail -n 20 "$work/log" && exit 1; } && tail -n 1 "$work/log" ;;
    *) echo "$word: not known" && exit 1 ;;
    esac
done <"$here/Containerfile"
