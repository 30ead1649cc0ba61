#!/usr/bin/env bash
# Adds architectures in a scratch copy. A second one of a known isa is one row
# of targets.def: its kernels are written and have their flags, and those of others
# keep their digests. A new isa does
# not compile until each table keyed by isa has its row: the compiler names it.
# usage: test_architectures.sh <repository root> <build folder>
set -euo pipefail
root=$(realpath "${1:?usage: test_architectures.sh <repository root> <build folder>}")
build=$(realpath "${2:?usage: test_architectures.sh <repository root> <build folder>}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

clean_tree() {
    rm -rf "$scratch/tree"
    mkdir "$scratch/tree"
    cp -r "$root"/{include,gen,templates,compile,predict} "$scratch/tree/"
    cd "$scratch/tree"
}

# compile <file> [options]
compile() { "${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror -D_GNU_SOURCE= -Iinclude -I. -Itemplates "$@"; }

fail() {
    printf 'NOT caught: %s\n%s\n' "$1" "$2"
    failed=1
}

# ---- one row ----------------------------------------------------------------

clean_tree
sed -n '/^KGEN_TARGET("gfx1201"/,/))$/p' include/kgen/targets.def |
    sed 's/gfx1201/gfx1299/; s/0x4e/0x48/' >row
[[ -s row ]] || fail "the row of gfx1201 is not found" ""
sed -i '/^KGEN_TARGET("sm_90"/{
    r row
    N
}' include/kgen/targets.def
cat >main.c <<'END'
#include <kgen/build.h>
#include <kgen/source.h>

#include <stdio.h>

/* The digest of a kernel of an architecture that was there before. */
static int print_old(void) {
    uint8_t digest[KGEN_SOURCE_DIGEST_BYTES];
    const kgen_target *target;
    kgen_spec spec;
    kgen_source source;
    if (kgen_target_find(&target, "gfx1201", NULL) != KGEN_OK ||
        kgen_spec_parse(&spec, "attn:kv=fp8", NULL) != KGEN_OK ||
        kgen_source_render(&source, &spec, target, NULL) != KGEN_OK)
        return 1;
    kgen_source_digest(digest, source.text, source.size);
    for (size_t i = 0; i < sizeof digest; i++) printf("%02x", digest[i]);
    kgen_source_free(&source);
    return 0;
}

int main(void) {
    static const char *const lines[] = {"attn:kv=fp8", "gdn:layout=flat", "scatter:op=spec_prepare",
                                        "kv_write:kv=fp8", "kv_gather:kv=fp8"};
    const kgen_target *target;
    kgen_error err;
    if (kgen_target_find(&target, "gfx1299", &err) != KGEN_OK) return puts(err.text), 1;
    for (int i = 0; i < 5; i++) {
        kgen_spec spec;
        kgen_source source;
        if (kgen_spec_parse(&spec, lines[i], &err) != KGEN_OK ||
            kgen_source_render(&source, &spec, target, &err) != KGEN_OK)
            return puts(err.text), 1;
        printf("%s: %zu bytes\n", source.symbol, source.size);
        kgen_source_free(&source);
    }
    puts(kgen_target_flags(target, KGEN_TOOLCHAIN_HIPRTC)[0]);
    return print_old();
}
END
if out=$(compile -O0 main.c gen/*.c compile/flags.c "$build/templates.c" -lsodium -o render 2>&1 && ./render) &&
    [[ $out == *"kg_attn_"*"kg_kv_gather_"*"--offload-arch=gfx1299"* ]]; then
    printf 'one row is an architecture: gfx1299\n'
    [[ $out == *"$("$build/bin/kgen" source attn:kv=fp8 --arch gfx1201 --digest)" ]] ||
        fail "a new architecture changes the kernels of an old one" "$out"
else
    fail "one row is no architecture" "$out"
fi

# ---- a new isa --------------------------------------------------------------

# expect <file> <what the compiler must name>
expect() {
    local out
    if out=$(compile -fsyntax-only "$1" 2>&1); then
        fail "$1 compiles without a row for the new isa" ""
    elif [[ $out == *"$2"* ]]; then
        printf 'caught: %s lacks %s\n' "$1" "$2"
    else
        fail "$1: '$2' expected" "$out"
    fi
}

clean_tree
sed -i '/^KGEN_ISA(RDNA4/{h; s/RDNA4/RDNA9/; s/rdna4/rdna9/; x; G}' include/kgen/targets.def
expect gen/attn_needs.c ATTN_RDNA9
expect gen/gdn_fill.c GDN_RDNA9
expect predict/mix.c STORES_RDNA9
expect predict/listing.c "a new isa has its column of cycles"
# Every other table keyed by isa is sized and filled from targets.def.
tables=$(grep -nE '\[KGEN_ISA_[A-Z0-9]+\] *=' -r gen compile predict --include='*.[ch]' |
    grep -v 'KGEN_ISA_COUNT' || true)
[[ -z $tables ]] || fail "a table keyed by isa is written by hand" "$tables"
exit "$failed"
