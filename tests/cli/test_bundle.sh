#!/usr/bin/env bash
# A bundle is built where the compiler is and used where none is: pack, merge, unpack, verify.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
command -v "${KGEN_CLANG:-clang}" >/dev/null || { echo "skipped: no clang" && exit 77; }
at=@cpu:cdna3
one=scatter:op=draft_lens two=scatter:op=cache_locs three=scatter:op=assign_locs
for spec in $one $two; do
    expect 0 "1 compiled" "$kgen" build $spec$at --no-variants -q --cache-dir "$work/$spec"
done

refuse 64 "--output FILE" "$kgen" pack
refuse 64 "--output FILE" "$kgen" merge one
refuse 13 "/none" "$kgen" merge -o x.kgb /none
expect 0 "1 kernels" "$kgen" pack -o one.kgb --cache-dir "$work/$one"
expect 0 "2 kernels" "$kgen" merge -o all.kgb one.kgb "$work/$two"
expect 0 '"entries": 1' "$kgen" pack -o said.kgb --cache-dir "$work/$one" --json
expect 0 '"entries": 2' "$kgen" merge -o said.kgb all.kgb --json
expect 0 '"entries": 2' "$kgen" unpack said.kgb --cache-dir "$work/said" --json
expect 0 "1 kernels" "$kgen" merge -o again.kgb one.kgb one.kgb "$work/$one"
cmp one.kgb again.kgb || fail "a bundle of a bundle is another file"
expect 0 "0 kernels" "$kgen" merge -o none.kgb all.kgb --arch gfx942
expect 0 "all.kgb: 2 kernels" "$kgen" verify all.kgb
expect 0 '"entries": 2' "$kgen" verify --json all.kgb
expect 0 "2 examined, 2 written by this version, 1 compiled again, 0 wrong" "$kgen" verify --deep --rebuild 1 all.kgb
expect 0 '"rebuilt": 0' "$kgen" verify --deep --rebuild 0 --json all.kgb

# A bundle beside a folder.
expect 0 "+ $two" "$kgen" report --diff "$work/$one" all.kgb
[[ $out == *"0 only in $work/$one, 1 only in all.kgb, 0 changed, 1 the same"* ]] || fail "diff: $out"
expect 0 '"same": 0' "$kgen" report --diff "$work/$one" "$work/$two" --json
refuse 64 "two bundles or cache folders" "$kgen" report --diff all.kgb
refuse 13 "/none" "$kgen" report --diff all.kgb /none

# Hits, and why other look-ups were none.
expect 0 "1 cached" "$kgen" build $one$at --no-variants -q --cache-dir "$work/$one"
echo "$three $at" >three.manifest
expect 10 "" "$kgen" verify -m three.manifest --no-variants --cache-dir "$work/$one"
capture "$kgen" doctor --cache-dir "$work/$one"
[[ $out == *"33.3 % of look-ups were hits: 1 here,"*"missed: 2 never built, 0 built by another"* ]] || fail "doctor: $out"
capture "$kgen" doctor --self-test --json --cache-dir "$work/$one"
[[ $out == *'"other_compiler": 0'* && $out == *'"error": null'* ]] || fail "doctor --self-test: $out"

# Restart with a bundle: nothing is compiled, nothing is written, no compiler is there.
image() { env KGEN_CACHE_LAYERS="$work/all.kgb" KGEN_CACHE_DIR="$work/user" KGEN_CLANG=/none "$@"; }
printf '%s %s\n' $one $at $two $at >planned.manifest
expect 0 "0 compiled, 2 cached" image "$kgen" build --manifest planned.manifest --no-variants -q
expect 0 "2 planned, 2 there, 0 missing" image "$kgen" verify -m planned.manifest --no-variants
[[ ! -e $work/user ]] || fail "a restart with a bundle writes: $(find "$work/user")"
echo "$three $at" >>planned.manifest
expect 10 "3 planned, 2 there, 1 missing" image "$kgen" verify -m planned.manifest --no-variants
[[ $errors == *"$three"* ]] || fail "verify does not name what is missing: $errors"
expect 10 '"missing": [' image "$kgen" verify -m planned.manifest --no-variants --json
KGEN_DEVICE='' expect 0 "cpu:cdna3: 2 there, 0 of its family, 1 missing" image "$kgen" doctor -m planned.manifest
[[ $out == *"missing: $three"*"kgen build --manifest planned.manifest --arch cpu:cdna3"* ]] || fail "doctor: $out"
echo "$one @gfx942" >other.manifest
expect 0 "no line is for cpu:cdna3; 1 planned for other architectures alone" image "$kgen" doctor -m other.manifest
expect 0 '"generic": 0' image "$kgen" doctor -m planned.manifest --json
echo "$one @gfx000" >wrong.manifest
expect 0 "arch=gfx000: unknown" image "$kgen" doctor -m wrong.manifest
# Two GPUs of a machine, one that nobody has kernels for before an APU: what each can run.
mock=$(dirname "$kgen")/../tests/libmock_hip.so
wide=kv_write:x=bf16,kv=i8,d=512,page=16,layout=shuffle,scale=token
printf '%s\n' "$one @gfx942" "$two @gfx1151" "$wide @gfx942" "$wide" >machine.manifest
machine() { MOCK_ARCH=$1 MOCK_ARCH_1=$2 MOCK_INTEGRATED=1 KGEN_HIP_LIB=$mock image "$kgen" doctor -m machine.manifest "${@:3}"; }
expect 0 "hip:0 is gfx801, which kgen has no kernels for" machine gfx801 gfx1151
[[ $out == *"(gfx1151, 304 units, memory of the host)"* ]] || fail "doctor: $out"
[[ $out == *"gfx1151: 0 there, 0 of its family, 1 missing, 1 it cannot run; 1 planned for other"* ]] || fail "doctor: $out"
[[ $out == *"cannot run: $wide"*"dv=512: scale=token"*"at most 256"*"missing: $two"* ]] || fail "doctor: $out"
expect 0 "hip:1 Mock 1 (gfx942" machine gfx1151 gfx942
[[ $out == *"gfx942: 0 there, 0 of its family, 2 missing; 1 planned for other"* ]] || fail "doctor: $out"
expect 0 '"elsewhere": 1' machine gfx1151 gfx942 --json
expect 0 "bundle   $work/all.kgb" image "$kgen" doctor
[[ ! -e $work/user ]] || fail "doctor leaves a folder"
chmod g+w all.kgb
expect 10 "refused: bundle $work/all.kgb: it can be written by others" \
    image "$kgen" verify -m planned.manifest --no-variants
capture image "$kgen" doctor
[[ $out == *"refused  bundle $work/all.kgb"* && $out != *Ready:* ]] || fail "doctor: $out"
expect 13 "it can be written by others" image "$kgen" verify
chmod g-w all.kgb

# signed
expect 0 "" "$kgen" pack --new-key key
public=$out
[[ $public =~ ^[0-9a-f]{64}$ ]] || fail "no public key: $public"
[[ $(stat -c %a key) == 600 ]] || fail "the key is readable: $(stat -c %a key)"
refuse 13 "File exists" "$kgen" pack --new-key key
expect 0 "signed by $public" "$kgen" merge -o all.kgb "$work/$one" "$work/$two" --key key
KGEN_BUNDLE_KEY=$public expect 0 "2 cached" image "$kgen" build $one$at $two$at --no-variants -q
KGEN_BUNDLE_KEY=${public//?/0} expect 13 "a key that KGEN_BUNDLE_KEY lacks" "$kgen" verify all.kgb

# unpacked, and damaged
expect 0 "2 kernels" "$kgen" unpack all.kgb --cache-dir "$work/folder" --shared
expect 0 "2 kernels" "$kgen" list --cache-dir "$work/folder"
KGEN_CACHE_LAYERS=$work/folder KGEN_CLANG=/none expect 0 "1 cached" "$kgen" build $two$at \
    --no-variants -q
# pruned: the one that was used last stays
refuse 64 "give --max-size" "$kgen" prune
find "$work/folder" -name '*.kgen' -exec touch -d '3 hours ago' {} +
expect 0 "1 cached" "$kgen" build $two$at --no-variants -q --cache-dir "$work/folder"
expect 0 "1 of 2 kernels would be removed" "$kgen" prune --max-count 1 --dry-run \
    --cache-dir "$work/folder"
expect 0 '"removed": 1' "$kgen" prune --max-count 1 --json --cache-dir "$work/folder"
expect 0 "1 cached" "$kgen" build $two$at --no-variants -q --cache-dir "$work/folder"
expect 0 "1 kernels" "$kgen" list --cache-dir "$work/folder"

printf X | dd of=all.kgb bs=1 seek=1000 conv=notrunc status=none
expect 13 "1 of 2 entries are damaged" "$kgen" verify all.kgb
expect 13 "1 kernels are damaged and were left out" "$kgen" unpack all.kgb --cache-dir "$work/less"
expect 0 "1 kernels" "$kgen" list --cache-dir "$work/less"
expect 13 "less.kgb: 1 kernels, notes or folders are damaged or refused and were left out" "$kgen" merge -o less.kgb all.kgb
expect 0 "less.kgb: 1 kernels" "$kgen" verify less.kgb
finish
