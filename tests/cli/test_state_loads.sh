#!/usr/bin/env bash
# Machine code of gdn kernels of one token: the state is loaded 16 bytes a lane,
# and the loads of its first parts are all on their way before one is waited for.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
archs="gfx942 gfx950"
specs="layout=flat,fuse=a layout=flat,fuse=a,state=bf16 layout=flat,fuse=a,state=fp16,sl=kv
layout=flat,fuse=b layout=flat,fuse=d layout=flat,fuse=e layout=flat,fuse=e,state=bf16
layout=flat,fuse=e,batch=few layout=flat,fuse=e,sl=kv layout=interleaved layout=flat,hv=48
layout=flat,dk=64,dv=64 layout=flat,dk=256,dv=256"

# value_of <key> <default>: of the resolved spec in $spec
value_of() {
    local value=${spec##*[:,]"$1"=}
    [[ $value == "$spec" ]] && value=$2
    printf '%s' "${value%%,*}"
}

# How many loads: $first before the barrier, $later after it. A lane holds `el`
# elements of a part, of two parts when there are more than one.
expect_loads() {
    local el dk dv bytes=2
    el=$(value_of el 0) dk=$(value_of dk 128) dv=$(value_of dv 128)
    [[ $(value_of state f32) == f32 ]] && bytes=4
    local parts=$((dv * dk / ($(value_of vb 1) * $(value_of waves 0) * 64 * el)))
    first=$((el * bytes * (parts > 1 ? 2 : 1) / 16))
    later=$((parts > 2 ? first : 0))
}

# Runs the script over a listing; what it finds in $out.
scan() { capture awk -v first="$first" -v later="$later" -f "$here/state_loads.awk" "$1"; }

# caught <words> <what was done to it>: the doctored listing is found out
caught() {
    scan doctored
    [[ $code == 1 && $out == *"$1"* ]] || fail "$spec: not found, $2 ($out)"
}

# One load made narrower, moved behind a use, behind a wait; a use before it.
doctor() {
    local last registers
    # the two last loads before the barrier: a line number, the other's registers
    read -r last registers < <(awk '/s_barrier/ { exit }
        /global_load_dwordx4/ { before = now; now = $3; line = NR }
        END { print line, before }' "$1")
    sed "${last}s/dwordx4/dwordx2/" "$1" >doctored
    caught "$((first - 1)) loads of 16 bytes before" "a load of 8 bytes"
    awk -v last="$last" 'NR == last { moved = $0; next } { print }
        moved && /_store_dwordx4/ { print moved; moved = "" }' "$1" >doctored
    caught "$((first - 1)) loads of 16 bytes before" "a load behind a use"
    sed "${last}i 0: s_waitcnt vmcnt(0)" "$1" >doctored
    caught "waits for a load before the last one" "a wait before a load"
    sed "${last}i 0: v_add_f32_e32 v255, v255, ${registers%,}" "$1" >doctored
    caught "$((first - 1)) loads of 16 bytes before" "a use before a load"
}

capture "$kgen" doctor
grep -E '^  gfx942 +hiprtc' "$work/.out" >/dev/null || { echo "skipped: no hipRTC" && exit 77; }
for arch in $archs; do
    for line in $specs; do
        expect 0 "kg_gdn" "$kgen" report "gdn:$line" --arch "$arch"
        key=$(awk 'NR == 2 { print $1 }' "$work/.out")
        [[ $key ]] || continue
        capture "$kgen" inspect "$key"
        spec=$(sed -n 's/^spec *//p' "$work/.out")
        expect_loads
        capture "$kgen" inspect "$key" --disassemble
        [[ $code == 0 ]] || fail "$spec, $arch: $errors"
        cp "$work/.out" listing
        scan listing
        [[ $code == 0 && -z $out ]] || fail "$spec, $arch: $out"
    done
    doctor listing
done
finish
