#!/usr/bin/env bash
# Build, list, inspect, source, report on one architecture that has a compiler.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
spec='attn:phase=decode,q=bf16,kv=bf16,d=64,g=4,page=16,layout=nhd'

arch=
for candidate in gfx942 cpu:cdna3; do
    capture "$kgen" doctor
    grep -E "^  $candidate +missing" "$work/.out" >/dev/null || { arch=$candidate && break; }
done
[[ $arch ]] || { echo "skipped: no compiler" && exit 77; }

expect 0 "1 compiled, 0 cached, 0 failed in" "$kgen" build "$spec" --arch "$arch"
[[ $errors == *"[1/1] compiled $spec @$arch"* ]] || fail "no plain progress line: $errors"
expect 0 "0 compiled, 1 cached, 0 failed in" "$kgen" build "$spec@$arch" "$spec @ $arch" -q
[[ -z $errors ]] || fail "-q is not quiet: $errors"
printf '# one\n%s @%s # again\n%s\n' "$spec" "$arch" "$spec" >two.manifest
expect 0 "0 compiled, 1 cached, 0 failed in" "$kgen" build --manifest two.manifest --arch "$arch"

expect 0 '"outcome": "cached"' "$kgen" build "$spec" --arch "$arch" --json -q
# A file for ninja: one output a kernel, the entry; what is there is not built again.
other=scatter:op=draft_lens
expect 0 "" "$kgen" build "$spec" "$spec" $other $other --arch "$arch" --no-variants --ninja "a b.ninja"
[[ $(grep -c "^build .*\.kgen: kernel$" "a b.ninja") == 2 ]] || fail "ninja: $(<"a b.ninja")"
if command -v ninja >/dev/null; then
    expect 0 "[1/1] $other@$arch" ninja -n -f "a b.ninja"
fi
expect 13 "/none/x: No such file" "$kgen" build $other --arch "$arch" --ninja /none/x

expect 0 "1 kernels" "$kgen" list
[[ $out == KEY* && $out == *"$arch"* && $out == *kg_* ]] || fail "list: $out"
key=$(awk 'NR == 2 {print $1}' "$work/.out")
expect 0 "\"spec\"" "$kgen" list --json
expect 0 "1 kernels" "$kgen" list "${key:0:4}"
expect 0 "0 kernels" "$kgen" list --arch gfx90a
expect 0 "spec            attn:phase=decode,q=bf16" "$kgen" inspect "$key"
[[ $out == *"arch            $arch"* && $out == *"scratch_bytes"* ]] || fail "inspect: $out"
expect 0 "\"resources\"" "$kgen" inspect --json "${key:0:6}"
expect 0 "" "$kgen" inspect "$key" -o code.bin
[[ $(head -c 4 code.bin | od -An -tx1 | tr -d ' ') == 7f454c46 ]] || fail "the code object is no ELF"

capture "$kgen" inspect -S "$key"
if grep -qE "^ *toolchain +hiprtc" <("$kgen" inspect "$key"); then
    [[ $code == 0 && $out == "     0: "*": s_endpgm"* ]] || fail "no listing: $out$errors"
    expect 0 "\"disassembly\": \"     0: " "$kgen" inspect "$key" --disassemble --json
    KGEN_ROCM_PATH=/none expect 7 "KGEN_ROCM_PATH=/none" "$kgen" inspect "$key" -S
elif [[ $arch == cpu:* ]]; then
    [[ $code == 3 && $errors == *"only kernels of AMD targets"* ]] || fail "listing: $errors"
else
    [[ $code == 7 && $errors == *"libamd_comgr"* ]] || fail "listing: $errors"
fi

# a cut that leaves a lane 64 registers, which a search may choose
tight='gdn:layout=flat,hk=1,hv=2,waves=16,lanes=8,el=16,occ=2'
[[ $arch != gfx942 ]] ||
    expect 0 "1 compiled" "$kgen" build "$tight" --arch "$arch" --no-variants \
    --cache-dir "$work/tight"

"$kgen" source "$spec" --arch "$arch" >by_spec
"$kgen" source "$key" >by_key
cmp by_spec by_key || fail "source by key differs from source by spec"
grep -q 'extern "C"' by_spec || fail "the source has no kernel"
for from in "$spec" "$key"; do # its bytes are in the JSON, and its digest alone is what --digest prints
    expect 0 '#define' "$kgen" source "$from" --arch "$arch" --json
    if command -v python3 >/dev/null; then
        python3 -c 'import json, sys; sys.stdout.write(json.load(open(sys.argv[1]))["source"])' "$work/.out" |
            cmp - by_spec || fail "source --json of $from is another text"
    fi
    expect 0 "$("$kgen" source "$from" --arch "$arch" --digest)" "$kgen" source "$from" --arch "$arch" --digest --json
    [[ $out != *'"source"'* ]] || fail "--digest prints the source: $out"
done
mkdir elsewhere
(cd elsewhere && LC_ALL=C.UTF-8 "$kgen" source "$spec" --arch "$arch") >again
cmp by_spec again || fail "the source depends on folder or locale"

expect 0 "kg_" "$kgen" report "$spec" --arch "$arch"
expect 0 "\"waves_per_simd\"" "$kgen" report "$spec" --arch "$arch" --json

# a damaged entry is set aside and built again
entry=$(find "$KGEN_CACHE_DIR" -type f -path "*/${key:0:2}/${key:2}*.kgen")
[[ -f $entry ]] || fail "no one entry of $key: $entry"
chmod u+w "$entry"
printf 'damage' | dd of="$entry" bs=1 seek=200 conv=notrunc status=none
expect 0 "1 compiled, 0 cached, 0 failed in" "$kgen" build "$spec" --arch "$arch"
expect 0 "1 kernels" "$kgen" list

# an empty compiler folder: exit code 7, or another compiler is found
export KGEN_CC=/none
expect 7 "KGEN_CC" "$kgen" build 'attn:d=64,g=2' --arch "$arch" --cache-dir "$work/other"
# The longest head in scalar products, of which nothing may stay in memory.
if [[ $arch == gfx942 && ${KGEN_TEST_LEVEL:-} == full ]]; then
    expect 0 "2 compiled" "$kgen" build attn:d=512,g=2 attn:d=512,g=8,kv=fp8,page=32,layout=hnd --arch gfx1030 --no-variants -q
fi
finish
