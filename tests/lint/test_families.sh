#!/usr/bin/env bash
# Adds rows in a scratch copy. A family's row alone does not compile, and where
# the types are there it does not link: each message names what is missing. A
# phase of attention is one row. An enumerator alone does not compile.
# usage: test_families.sh <repository root> <build folder>
set -euo pipefail
root=$(realpath "${1:?usage: test_families.sh <repository root> <build folder>}")
build=$(realpath "${2:?usage: test_families.sh <repository root> <build folder>}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

clean_tree() {
    rm -rf "$scratch/tree"
    mkdir "$scratch/tree"
    cp -r "$root"/{include,gen,templates,device,tuning,runtime,check,workload,predict} "$scratch/tree/"
    cd "$scratch/tree"
}

# compile <file> [options]
compile() { "${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror -D_GNU_SOURCE= -Iinclude -I. -Itemplates "$@"; }

fail() {
    printf 'NOT caught: %s\n%s\n' "$1" "$2"
    failed=1
}

# expect <what> <text of the message> <command...>
expect() {
    local out what=$1 text=$2
    shift 2
    if out=$("$@" 2>&1); then
        fail "$what is not missed" ""
    elif [[ $out == *"$text"* ]]; then
        printf 'caught: %s: %s\n' "$what" "$text"
    else
        fail "$what: '$text' expected" "$out"
    fi
}

# ---- a family ---------------------------------------------------------------

clean_tree
sed -i '/^#undef KGEN_FAMILY$/i KGEN_FAMILY(new, NEW)' include/kgen/families.def
expect 'headers of a family' kgen_new_spec compile -fsyntax-only gen/families.c
sed -i '/^#undef KGEN_QUOTED/i #include KGEN_FAMILY_HEADER(new)' include/kgen/families.def
expect 'spec of a family' new_spec.h compile -fsyntax-only gen/families.c
echo 'typedef struct kgen_new_spec { int value; } kgen_new_spec;' >include/kgen/new_spec.h
expect 'arguments of a family' new_args.h compile -fsyntax-only runtime/launch.c
echo 'typedef struct kgen_new_args { kgen_tensor in; } kgen_new_args;' >include/kgen/new_args.h
expect 'case of a family' new_case.h compile -fsyntax-only check/check_family.c
echo 'typedef struct kgen__new_case { int value; } kgen__new_case;' >check/new_case.h

# link <file>: all that it needs and nobody has
# shellcheck disable=SC2317  # expect calls it
link() { compile -O0 -fPIC -shared -Wl,--no-undefined "$1" -o /dev/null; }
expect 'rules of a family' kgen__family_new link gen/families.c
expect 'launch of a family' kgen__launch_new link runtime/launch.c
expect 'check of a family' kgen__check_family_new link check/check_family.c
expect 'workload of a family' kgen__workload_new link workload/workload.c
expect 'prediction of a family' kgen__predict_new link predict/bytes.c

# With these five it is a family: no file but families.def was changed.
if out=$(diff -rq "$root/include" include; diff -rq "$root/check" check) ||
    [[ $(grep -c ' differ$' <<<"$out") == 1 && $out == *families.def* ]]; then
    printf 'a family: its own files and families.def\n'
else
    fail "other files were changed" "$out"
fi
for file in gen runtime check workload predict; do
    case $file in
    gen) name='kgen__family kgen__family_new' head=gen/family.h ;;
    runtime) name='kgen__launcher kgen__launch_new' head=runtime/launch.h ;;
    check) name='kgen__check_family kgen__check_family_new' head=check/check_family.h ;;
    workload) name='kgen__workload_family kgen__workload_new' head=workload/workload_family.h ;;
    predict) name='kgen__predict_family kgen__predict_new' head=predict/predict_family.h ;;
    esac
    printf '#include "%s"\nconst %s = {0};\n' "$head" "$name" >"$file/new.c"
    compile -fsyntax-only "$file/new.c" || fail "$file/new.c" "does not compile"
done

# Every other table of families is filled from families.def.
cd "$root"
tables=$(grep -nE '\[KGEN_FAMILY_[A-Z_]+\] *=' -r gen plan cache tuning compile runtime \
    check workload predict tuner cli --include='*.[ch]' | grep -v KGEN_FAMILY_COUNT || true)
[[ -z $tables ]] || fail "a table of families is written by hand" "$tables"

# ---- a phase of attention -----------------------------------------------------

clean_tree
sed -i '/^#undef KGEN_ATTN_PHASE/i KGEN_ATTN_PHASE(newer, NEWER, "attn.hip", 300, 1, 1)' \
    include/kgen/attn_phases.def
cat >main.c <<'END'
#include <kgen/source.h>

#include <stdio.h>

int main(void) {
    const kgen_target *target;
    kgen_spec spec;
    kgen_source source;
    kgen_error err;
    if (kgen_spec_parse(&spec, "attn:phase=newer,t=301", &err) == KGEN_OK) return 1;
    puts(err.text);
    if (kgen_spec_parse(&spec, "attn:phase=newer,t=300", &err) != KGEN_OK ||
        kgen_target_find(&target, "gfx942", &err) != KGEN_OK ||
        kgen_source_render(&source, &spec, target, &err) != KGEN_OK)
        return puts(err.text), 1;
    puts(source.symbol);
    kgen_source_free(&source);
    return 0;
}
END
if out=$(compile -O0 main.c gen/*.c "$build/templates.c" -lsodium -o phase 2>&1 && ./phase) &&
    [[ $out == *"nearest is 300"*"kg_attn_newer_"* ]]; then
    printf 'one row is a phase: newer\n'
else
    fail "one row is no phase" "$out"
fi

# ---- an enumerator --------------------------------------------------------------

clean_tree
sed -i 's/^    KGEN_DTYPE_COUNT/    KGEN_DTYPE_NEW,\n&/; s/^    KGEN_LAYOUT_COUNT/    KGEN_LAYOUT_NEW,\n&/' \
    include/kgen/spec.h
expect 'row of a type' 'a kgen_dtype has no row' compile -fsyntax-only gen/spec.c
expect 'name of a layout' 'a kgen_layout has no name' compile -fsyntax-only gen/spec.c
exit "$failed"
