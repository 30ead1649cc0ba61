#!/usr/bin/env bash
# Rows of the tuning database: import, list, export, check, what they change.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
spec='attn:phase=decode,q=bf16,kv=bf16,d=64,g=4,page=16,layout=nhd'
export KGEN_TUNING=$work/rows/user.jsonl

digest() { "$kgen" source "$1" --arch "$2" --digest; }

# row <spec> <arch> <batch> <us> <date> [device]: a good row over a default of 60 us
row() {
    local plain=${1%%,waves=*}
    printf '{"kgen":1,"arch":"%s","spec":"%s","problem":{"batch":%s,"context":8192,"heads":8},' \
        "$2" "$1" "$3"
    printf '"device":"%s","driver":"1","toolchain":"c","date":"%sT00:00:00Z",' "${6:-Test GPU}" "$5"
    printf '"kernel":"%s","default_kernel":"%s",' "$(digest "$1" "$2")" "$(digest "$plain" "$2")"
    printf '"us":%s,"low":1,"high":100,"default_us":60,"samples":9,"seed":1,' "$4"
    printf '"compute_units":4,"clock_mhz":0,"memory_mhz":0}\n'
}

# nothing yet
expect 0 "0 rows" "$kgen" tuning list --layer user
expect 0 "0 valid, 0 stale, 0 bad lines" "$kgen" tuning check --layer user
expect 0 ", 0 bad lines" "$kgen" tuning check --layer shipped
expect 0 "" "$kgen" tuning export --layer user
[[ -z $out ]] || fail "exports rows from nowhere: $out"
expect 0 "the family's rule: no row of this kernel on sm_90" "$kgen" explain "$spec" \
    --problem batch=8,context=8192 --arch sm_90
expect 0 "the size of the problem is not known" "$kgen" explain "$spec" --arch sm_90

# import, list, explain
row "$spec,waves=2" sm_90 8 50.5 2026-01-02 >one.jsonl
row "$spec,waves=2" gfx942 8 50.5 2026-01-02 >two.jsonl
expect 0 "1 added, 0 replaced, 0 kept, in $KGEN_TUNING" "$kgen" tuning import one.jsonl
expect 0 "0 added, 0 replaced, 1 kept" "$kgen" tuning import one.jsonl
# shellcheck disable=SC2016
expect 0 "1 added, 0 replaced, 0 kept" bash -c '"$0" tuning import - <two.jsonl' "$kgen"
expect 0 "2 rows" "$kgen" tuning list --layer user
[[ $out == BATCH* && $out == *"50.5  1.19  Test GPU  2026-01-02  valid  user"* ]] || fail "list: $out"
expect 0 "1 rows" "$kgen" tuning list --layer user --arch sm_90
expect 0 '"stale": false' "$kgen" tuning list --layer user --arch sm_90 --json
[[ $out == *'"us": 50.5'* && $out != *gfx942* ]] || fail "list --json: $out"
expect 0 "[]" "$kgen" tuning list --layer user --family gdn --json
expect 0 "0 rows" "$kgen" tuning list --layer user --family gdn
expect 0 "0 rows" "$kgen" tuning list --device "Other GPU"
expect 0 "row of batch 8 x 8192, Test GPU, 2026-01-02: 50.5 us, the default 60.0" "$kgen" explain \
    "$spec" --problem context=8192,batch=8 --arch sm_90 --device "Test GPU"
[[ $out == *",waves=2,"*" @sm_90"* ]] || fail "not the row's kernel: $out"
expect 0 "nearest row, of batch 8 x 8192" "$kgen" explain "$spec" --problem batch=9,context=9000 --arch sm_90
expect 0 "row of another device, of batch 8" "$kgen" explain "$spec" --problem batch=8,context=8192 \
    --arch sm_90 --device "Other GPU"
expect 0 "contradicts the tuning keys" "$kgen" explain "$spec,waves=1" \
    --problem batch=8,context=8192 --arch sm_90
KGEN_TUNING="" expect 0 "no tuning database" "$kgen" explain "$spec" --problem batch=8 --arch sm_90
KGEN_TUNING="" refuse 4 "the empty path means no tuning database" "$kgen" tuning import one.jsonl

# what is exported can be imported, and comes out the same
"$kgen" tuning export --layer user >exported.jsonl
KGEN_TUNING=$work/again.jsonl expect 0 "2 added" "$kgen" tuning import exported.jsonl
cmp exported.jsonl "$work/again.jsonl" || fail "export and import change the rows"
expect 0 '"arch":"gfx942"' "$kgen" tuning export --arch gfx942
[[ $out != *sm_90* ]] || fail "the filter lets others through: $out"
LC_ALL=C sort -c "$KGEN_TUNING" || fail "the file is not sorted"

# a newer row replaces, an older one does not
row "$spec,waves=4" sm_90 8 55 2026-01-03 >newer.jsonl
row "$spec,waves=1" sm_90 8 5 2026-01-01 >older.jsonl
expect 0 "0 added, 1 replaced, 0 kept" "$kgen" tuning import newer.jsonl
expect 0 "0 added, 0 replaced, 1 kept" "$kgen" tuning import older.jsonl
expect 0 "55.0 us, the default 60.0" "$kgen" explain "$spec" --problem batch=8,context=8192 --arch sm_90

# all or nothing
cp "$KGEN_TUNING" before.jsonl
{ row "$spec" sm_90 16 50 2026-01-02; echo '{"kgen":1,"us":NaN}'; } >bad.jsonl
refuse 5 "bad.jsonl: line 2: row: not valid JSON" "$kgen" tuning import bad.jsonl
sed 's/"us":50/"us":-50/' bad.jsonl | head -n 1 >negative.jsonl
refuse 5 "negative.jsonl: line 1: us=-50: must be 0.001 to 1e+09" "$kgen" tuning import negative.jsonl
sed 's/"kgen":1/"kgen":2/' one.jsonl >schema.jsonl
refuse 5 "schema.jsonl: line 1: kgen=2: this version reads rows of format 1" "$kgen" tuning import schema.jsonl
refuse 13 "none.jsonl: cannot open" "$kgen" tuning import none.jsonl
KGEN_TUNING=/dev/null/x refuse 13 "/dev/null/x" "$kgen" tuning import one.jsonl
cmp "$KGEN_TUNING" before.jsonl || fail "a refused import changed the file"

# bad lines and stale rows of the file: told, not used
old=$(digest "$spec,waves=4" sm_90)
sed "s/$old/${old:32}${old:0:32}/" before.jsonl >"$KGEN_TUNING"
echo 'not a row' >>"$KGEN_TUNING"
expect 0 "1 row near this problem is stale" "$kgen" explain "$spec" --problem batch=8,context=8192 --arch sm_90
expect 5 "user.jsonl:3: row: not valid JSON" "$kgen" tuning check --layer user
[[ $out == "1 valid, 1 stale, 1 bad lines" ]] || fail "check: $out"
expect 0 "  stale  user" "$kgen" tuning list --layer user
expect 0 '"stale": true' "$kgen" tuning list --layer user --json
expect 0 "kgen tune 'attn:" "$kgen" tuning renew --layer user
[[ $out == *"dv=64,g=4,page=16,layout=nhd,descale=none' --problem batch=8,context=8192,heads=8" ]] || fail "renew: $out"
capture "$kgen" doctor
[[ $out == *"user       2 rows, 1 valid, 1 stale, 1 bad lines  ($KGEN_TUNING)"* ]] || fail "doctor: $out"
[[ $out == *"user.jsonl:3: row: not valid JSON"* ]] || fail "doctor does not say which line: $out"
capture "$kgen" doctor --json
[[ $out == *'"bad_lines": 1'*'"layer": "user"'* || $out == *'"layer": "user"'*'"bad_lines": 1'* ]] ||
    fail "doctor --json: $out"

# wrong use
refuse 64 "usage: kgen tuning" "$kgen" tuning
refuse 64 "'frobnicate': list, import, export, check, renew or restamp expected" "$kgen" tuning frobnicate
refuse 64 "import: a FILE of rows expected" "$kgen" tuning import
refuse 64 "only import and restamp take a FILE" "$kgen" tuning list one.jsonl
refuse 64 "--json belongs to list" "$kgen" tuning check --json
refuse 2 "family=gnd: unknown" "$kgen" tuning list --family gnd
for problem in batch batch= batch=x batch=-1 batch=1x batch=9999999999; do
    refuse 64 "problem: $problem: a number 1 to" "$kgen" explain attn: --problem "$problem"
done
for problem in 'batch=1,' ',batch=1' 'batch=1,,context=2' size=3; do
    refuse 64 "batch=N,context=N,heads=N expected" "$kgen" explain attn: --problem "$problem"
done
refuse 2 "d=100: out of bounds" "$kgen" explain attn:d=100 --problem batch=1
refuse 6 "arch=gfx1: unknown" "$kgen" explain attn: --arch gfx1

# build: every variant, or the default alone
capture "$kgen" doctor
grep -E "^  cpu:cdna3 +missing" "$work/.out" >/dev/null && finish && exit
row "$spec,waves=2" cpu:cdna3 8 50 2026-01-02 >cpu.jsonl
expect 0 "1 added" "$kgen" tuning import cpu.jsonl
expect 0 "1 compiled, 0 cached, 0 failed" "$kgen" build "$spec@cpu:cdna3" --no-variants
expect 0 "1 compiled, 1 cached, 0 failed" "$kgen" build "$spec@cpu:cdna3"
[[ $errors == *"cached $spec @cpu:cdna3"* && $errors == *"compiled attn:"*",waves=2,"* ]] ||
    fail "build: $errors"
expect 0 "2 compiled, 0 cached, 0 failed" "$kgen" build gdn:layout=flat,hk=1,hv=2@cpu:cdna3
[[ $errors == *"batch=few"* ]] || fail "a build of gdn has no batch=few: $errors"
finish
