#!/usr/bin/env bash
# Structure rules of CONVENTIONS.md that a script can check:
#   includes   dependencies point one way; gen, plan, cache and tuning see no GPU header
#   length     no function over 60 lines without a reason beside it
#   readme     the C program of README.md is part of examples/decode.c
# usage: lint.sh <repository root>; prints one line a finding, exit 1 if any
set -euo pipefail
root=${1:?usage: lint.sh <repository root>}
cd "$root"
findings=0

finding() {
    printf '%s\n' "$*"
    findings=$((findings + 1))
}

# folder -> folders whose local headers it may include
declare -A may_see=(
    [include]="include" [gen]="gen templates" [plan]="plan" [cache]="cache" [tuning]="tuning cache gen"
    [compile]="compile" [device]="device" [runtime]="runtime device tuning gen templates"
    [check]="check" [workload]="workload" [predict]="predict templates"
    [tuner]="tuner check workload predict" [cli]="cli check workload predict tuner"
    [examples]=""
)

# What gen, plan, cache and tuning may include in angle brackets, beside <kgen/...>.
pure_headers="assert.h ctype.h dirent.h elf.h errno.h fcntl.h float.h inttypes.h limits.h locale.h
math.h pthread.h pwd.h signal.h stdalign.h stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h
stdlib.h string.h strings.h time.h unistd.h sys/file.h sys/mman.h sys/random.h sys/stat.h
sys/types.h sys/uio.h uthash.h utarray.h utlist.h jansson.h msgpack.h sodium.h zstd.h zstd_errors.h"

# prints "line<TAB>kind<TAB>header", kind < or "
includes_of() {
    awk '/^[ \t]*#[ \t]*include/ {
        if (match($0, /[<"][^>"]*[>"]/))
            printf "%d\t%s\t%s\n", NR, substr($0, RSTART, 1), substr($0, RSTART + 1, RLENGTH - 2)
        else printf "%d\t?\t%s\n", NR, $0
    }' "$1"
}

check_angle() { # file line header
    local file=$1 line=$2 header=$3 top=${1%%/*}
    [[ $header == kgen/* ]] && return
    case $top in
    gen | plan | cache | tuning | include)
        [[ " ${pure_headers//$'\n'/ } " == *" $header "* ]] && return
        finding "$file:$line: <$header> is not allowed in $top/ (only <kgen/...>, libc and the listed libraries)"
        ;;
    esac
}

check_local() { # file line header
    local file=$1 line=$2 header=$3 top=${1%%/*} path folder
    if [[ -f ${file%/*}/$header ]]; then
        path=$(realpath -m --relative-to=. "${file%/*}/$header")
    elif [[ -f $header ]]; then
        path=$header
    else
        finding "$file:$line: \"$header\" is not a file of this repository"
        return
    fi
    for folder in ${may_see[$top]}; do
        [[ ${path%%/*} == "$folder" ]] && return
    done
    finding "$file:$line: $top/ may not include \"$header\" ($path)"
}

check_includes() {
    local file line kind header
    for file in "$@"; do
        while IFS=$'\t' read -r line kind header; do
            case $kind in
            '<') check_angle "$file" "$line" "$header" ;;
            '"') check_local "$file" "$line" "$header" ;;
            *) # the rows of a family, which its file names in angle brackets
                [[ $header == *"include ARGS_DEF" ]] || finding "$file:$line: #include of a macro" ;;
            esac
        done < <(includes_of "$file")
    done
}

# A function starts at a line that begins in column 1 and ends in "{", and ends
# at "}" in column 1. A comment "/* long: why */" right above it is the reason.
check_length() {
    local text
    while IFS= read -r text; do
        finding "$text"
    done < <(awk -v limit=60 '
        FNR == 1 { start = 0; head = 0; reason = 0 }
        /^\/\* long: / { reason = 1; next }
        !start && /^[a-zA-Z_].*\(/ { head = FNR; name = $0 }
        !start && head && /\{$/ && !/^(static )?(const )?(struct|enum|union|typedef)[^(]*\{$/ &&
            !/= *\{$/ { start = head }
        !start && /;$/ { head = 0; reason = 0 }
        start && /^}/ {
            n = FNR - start + 1
            if (n > limit && !reason) printf "%s:%d: %d lines, at most %d: %s\n",
                FILENAME, start, n, limit, name
            start = 0; head = 0; reason = 0
        }' "$@")
}

check_readme() {
    local program
    [[ -f README.md ]] || return 0
    program=$(awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md)
    [[ -n $program && $(<examples/decode.c) == *"$program"* ]] ||
        finding "README.md: its C program is not a part of examples/decode.c"
}

mapfile -t files < <(for folder in "${!may_see[@]}"; do
    [[ -d $folder ]] && find "$folder" -name '*.[ch]' -o -name '*.def'
done | LC_ALL=C sort)
[[ ${#files[@]} -gt 0 ]] || finding "no C files under $root"
check_includes "${files[@]}"
check_length "${files[@]}"
check_readme

if ((findings)); then
    printf 'lint: %d findings\n' "$findings"
    exit 1
fi
printf 'lint: %d files, nothing to say\n' "${#files[@]}"
