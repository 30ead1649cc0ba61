#!/usr/bin/env bash
# The cache and the compilers under faults, a pain a function.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
# shellcheck source=fake_compiler.sh
source "$here/fake_compiler.sh"
full=0 && [[ ${KGEN_TEST_LEVEL:-} != full ]] || full=1
at=@cpu:cdna3
kernels=("scatter:op=draft_lens$at" "scatter:op=cache_locs$at" "scatter:op=assign_locs$at")
one=${kernels[0]}
shim=$(dirname "$kgen")/../tests/libfaulty_io.so # nothing can be loaded before a sanitizer
build() { "$kgen" build --no-variants -q "$@"; }

# A container has no ~/.cache: the lock needs the folder before any entry does.
storm_without_a_parent() {
    fake storm
    local i pids=() many=$((full ? 32 : 8))
    KGEN_CACHE_DIR=$work/no/such/parent/cache
    for ((i = 0; i < many; i++)); do build "$one" >"$work/storm.$i" 2>&1 & pids+=($!); done
    for i in "${pids[@]}"; do wait "$i" || fail "storm: exit code $?"; done
    [[ $(runs storm) == 1 ]] || fail "storm: $(runs storm) compilations of one kernel by $many processes"
    [[ $(cat "$work"/storm.[0-9]* | grep -c '^1 compiled') == 1 ]] || fail "storm: who compiled?"
}

# Each process has the kernels in an order of its own: after the lock it must look again.
storm_of_several_kernels() {
    fake several 'sleep 0.05'
    fresh
    local i pids=() many=$((full ? 32 : 6)) order
    for ((i = 0; i < many; i++)); do
        mapfile -t order < <(printf '%s\n' "${kernels[@]}" | shuf)
        build -j 2 "${order[@]}" >/dev/null & pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i" || fail "several: exit code $?"; done
    [[ $(runs several) == "${#kernels[@]}" ]] ||
        fail "several: $(runs several) compilations of ${#kernels[@]} kernels"
}

# A budget that is over leaves what is done, and the same command goes on.
budget_and_resume() {
    fake budget "[[ \$(wc -l <\"$work/runs.budget\") == 1 || ! -e \"$work/hold\" ]] || sleep 100"
    fresh && touch "$work/hold"
    expect 17 "2 of 3 kernels are left" timeout 60 "$kgen" build "${kernels[@]}" --no-variants -q -j 1 --budget 1
    [[ $out == "1 compiled, 0 cached, 0 failed in "* ]] || fail "budget: $out"
    expect 17 '"left": 2' timeout 60 "$kgen" build "${kernels[@]}" --no-variants -q --budget 0.3 --json
    rm "$work/hold"
    expect 0 "2 compiled, 1 cached, 0 failed" "$kgen" build "${kernels[@]}" --no-variants -q --budget 10m
    expect 64 "--budget" "$kgen" build "$one" --budget soon
}

# One that waits does so as long as a kernel may take, and then compiles for itself.
slow_compile() {
    local sleep=1 first begin
    ((!full)) || sleep=65
    fake slow "sleep $sleep"
    fresh
    build "$one" >/dev/null & first=$!
    await has_run slow 1
    expect 0 "1 cached" "$kgen" build "$one" --no-variants -q
    wait "$first" || fail "slow: the first process: exit code $?"
    [[ $(runs slow) == 1 ]] || fail "slow: compiled $(runs slow) times"
    fresh
    fake stopped "[[ ! -e $work/hold ]] || sleep 30"
    touch "$work/hold"
    "$kgen" build "$one" --no-variants >/dev/null 2>&1 & first=$!
    await has_run stopped 1
    kill -STOP "$first" # it holds the lock, and does not end
    rm "$work/hold"
    begin=$SECONDS
    expect 0 "1 compiled" "$kgen" build "$one" --no-variants -q --timeout 1
    ((SECONDS - begin < 20)) || fail "slow: $((SECONDS - begin)) s with --timeout 1"
    kill -KILL "$first"
    wait "$first" 2>/dev/null || :
}

# Where the compiler is gone the kernels are still there; where it is another, they are not its.
compiler_gone() {
    fake here
    fresh
    build "$one" >/dev/null
    expect 0 "1 cached" env KGEN_CLANG=/none "$kgen" build "$one" --no-variants -q
    expect 0 "1 cached" env -u KGEN_CLANG PATH=/none "$kgen" build "$one" --no-variants -q
    expect 7 "KGEN_CLANG=/none" env KGEN_CLANG=/none "$kgen" build "${kernels[1]}" --no-variants -q
    expect 0 "1 compiled" env KGEN_CPU_SANITIZE=$((1 - ${KGEN_CPU_SANITIZE:-0})) "$kgen" build "$one" \
        --no-variants -q # other flags
    expect 0 "1 cached" env KGEN_CLANG=/none "$kgen" build "$one" --no-variants -q
}

# No variable of the caller reaches a compiler: what it made would be another thing under the same key.
hidden_knobs() {
    fake knobs
    fresh
    local name names=(CCC_OVERRIDE_OPTIONS CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH HIPCC_COMPILE_FLAGS_APPEND
        HIPRTC_COMPILE_OPTIONS_APPEND AMD_COMGR_CACHE_DIR NVCC_APPEND_FLAGS SOURCE_DATE_EPOCH LD_PRELOAD_X)
    expect 0 "1 compiled" env "${names[@]/%/=-O0}" "$kgen" build "$one" --no-variants -q
    for name in "${names[@]}"; do
        ! grep -q "^$name=" "$work/env.knobs" || fail "$name reaches the compiler"
    done
}

# A disk that fails now and then costs a compilation or a message, and no entry is ever a bad one.
faulty_disk() {
    [[ ${KGEN_CPU_SANITIZE:-0} == 0 ]] || return 0
    local seed=$((RANDOM * 32768 + RANDOM)) i many=$((full ? 600 : 24)) failed=0 done every command
    fake faulty
    fresh
    build "${kernels[@]}" >/dev/null
    expect 0 "3 kernels" "$kgen" pack -o "$work/layer.kgb"
    echo "KGEN_TEST_SEED=$seed"
    for ((i = 0; i < many; i++)); do
        ((i % 8)) || fresh
        every=$((5 + (seed + i) % 4 * 15))
        command=(build "${kernels[@]}" --no-variants -q)
        ((i % 4 != 2)) || command=(merge -o "$work/merged.kgb" "$work/layer.kgb")
        ((i % 4 != 3)) || command=(unpack "$work/layer.kgb")
        capture env LD_PRELOAD="$shim" KGEN_FAULT_SEED=$((seed + i)) KGEN_FAULT_EVERY=$every \
            KGEN_CACHE_LAYERS="$( ((i % 4 != 1)) || echo "$work/layer.kgb")" timeout 60 "$kgen" "${command[@]}"
        [[ $code =~ ^(0|7|8|10|13)$ ]] || fail "faulty disk, seed $((seed + i)), 1 in $every: ${command[0]}: exit code $code ($errors)"
        done=$((code == 0)) failed=$((failed + (code != 0)))
        [[ ! -d $KGEN_CACHE_DIR ]] || expect 0 "" "$kgen" verify "$KGEN_CACHE_DIR"
        ((!done)) || [[ ${command[0]} != merge ]] || expect 0 "3 kernels" "$kgen" verify "$work/merged.kgb"
        ((!done)) || [[ ${command[0]} != unpack ]] ||
            expect 0 "3 cached" env KGEN_CLANG=/none "$kgen" build "${kernels[@]}" --no-variants -q
    done
    ((failed)) || fail "faulty disk: nothing has failed of $many"
    echo "faulty disk: $failed of $many commands failed"
    build "${kernels[@]}" >/dev/null # without faults all is there again
    expect 0 "3 kernels" "$kgen" list
}

# Whether a clang compiles for an AMD GPU is asked once, not by each process.
amd_by_clang() {
    local amd="${one%@*}@gfx942" i
    local -x KGEN_ROCM_PREFIX=$work/none
    fake prober
    fresh
    [[ ! -e /opt/rocm ]] && "$clang" --print-targets | grep amdgcn >/dev/null || return 0
    for ((i = 0; i < 4; i++)); do "$kgen" build "$amd" --no-variants -q >"$work/amd.$i" 2>&1 & done
    wait
    grep -q "1 compiled" "$work"/amd.? || fail "clang for AMD: $(cat "$work"/amd.?)"
    [[ $(runs prober) == 2 ]] || fail "clang for AMD: $(runs prober) runs, a probe and a kernel expected"
    expect 0 "1 cached" "$kgen" build "$amd" --no-variants -q
    [[ $(runs prober) == 2 ]] || fail "clang for AMD: $(runs prober) runs after a hit"
    fake other
    expect 0 "1 compiled" "$kgen" build "$amd" --no-variants -q
    [[ $(runs other) == 2 ]] || fail "another clang for AMD: $(runs other) runs"
}

# Its version is not what a compiler is; and it reads no configuration of the machine.
compiler_identity() {
    fake first
    fresh
    build "$one" >/dev/null
    fake second
    expect 0 "1 compiled" "$kgen" build "$one" --no-variants -q
    cp "$work/second" "$work/moved" && touch -d 2001-01-01 "$work/moved"
    KGEN_CLANG=$work/moved expect 0 "1 cached" "$kgen" build "$one" --no-variants -q
    local keys
    capture "$kgen" list
    mapfile -t keys < <(awk '/cpu:cdna3/ {print $1}' "$work/.out")
    [[ ${#keys[@]} == 2 ]] || fail "identity: ${#keys[@]} keys of two compilers"
    expect 0 "compiler  clang 19.1.7" "$kgen" explain "${keys[@]}"
    [[ $out != *source* && $out != *arch* ]] || fail "explain: $out"
    expect 0 "one kernel: ${one%@*}" "$kgen" explain "${keys[0]}" "${keys[0]}"
    expect 0 '"what": "compiler"' "$kgen" explain "${keys[@]}" --json
    build "${kernels[1]}" >/dev/null
    capture "$kgen" list
    expect 0 "source    line" "$kgen" explain "${keys[0]}" \
        "$(awk '/cache_locs/ {print $1}' "$work/.out")"
    expect 10 "no entry has this key" "$kgen" explain "${keys[0]}" 000000000000
    grep -q '^CLANG_NO_DEFAULT_CONFIG=1$' "$work/env.second" || fail "identity: clang.cfg is read"
}

# ---- reasons -------------------------------------------------------------------
# said WORDS COMMAND...: build and doctor both say why an entry cannot be saved.
said() {
    local words=$1 && shift
    expect 13 "$words" "$@" "$kgen" build "$one" --no-variants -q
    capture "$@" "$kgen" doctor
    [[ $out == *"$words"* && $out != *"Ready:"* ]] || fail "doctor does not say '$words': $out$errors"
}
# With so few descriptors that something fails, it says so, whatever it is.
no_descriptors() {
    [[ ${KGEN_CPU_SANITIZE:-0} == 0 ]] || return 0 # a sanitizer needs some itself
    local n saved=0 named=0
    for ((n = 5; n < 40; n++)); do
        fresh
        capture bash -c 'ulimit -S -n "$0"; exec "$@"' $n "$kgen" build "$one" --no-variants -q
        [[ $code != 0 ]] || { saved=1 && break; }
        [[ $errors != *"shared libraries"* ]] || continue # the loader's turn
        [[ $errors == *"Too many open files"* ]] || fail "$n descriptors: $errors"
        [[ $errors != *"could not be saved"* || $errors == *"no descriptor left"* ]] || fail "no hint: $errors"
        named=1
    done
    ((saved && named)) || fail "descriptors: saved $saved, refused $named"
}
# As the system says it, whoever runs the tests: a call that always fails for one reason.
injected_reasons() {
    [[ ${KGEN_CPU_SANITIZE:-0} == 0 ]] || return 0
    local call number words
    fake injected
    fresh
    build "$one" >/dev/null
    while read -r call number words; do
        fresh && mkdir "$KGEN_CACHE_DIR"
        said "$words" env LD_PRELOAD="$shim" KGEN_FAULT_CALL="$call" KGEN_FAULT_REASON="$number"
        [[ -z $(find "$KGEN_CACHE_DIR" -name '*.kgen' -o -name '.tmp-*') ]] || fail "$call: $words: something is left"
    done <<<"creat 1 Operation not permitted (folders and files must be owned by this user or root
creat 24 Too many open files (this process has no descriptor left
creat 30 Read-only file system
mkdirat 13 Permission denied
mkdirat 28 No space left on device
fsync 5 Input/output error
fsync 28 No space left on device
fsync 122 Disk quota exceeded
renameat 1 Operation not permitted (folders and files must be owned by this user or root
renameat 30 Read-only file system"
}
# What is read and written in pieces is whole in the end.
short_counts() {
    [[ ${KGEN_CPU_SANITIZE:-0} == 0 ]] || return 0
    fake pieces
    fresh
    local -x KGEN_FAULT_PIECE=61
    local pieces=(env LD_PRELOAD="$shim")
    expect 0 "1 compiled" "${pieces[@]}" "$kgen" build "$one" --no-variants -q
    expect 0 "1 kernels" "${pieces[@]}" "$kgen" pack -o "$work/pieces.kgb"
    expect 0 "1 kernels" "${pieces[@]}" "$kgen" unpack "$work/pieces.kgb" --cache-dir "$work/pieces.d"
    expect 0 "0 wrong" "$kgen" verify --deep --rebuild 1 "$work/pieces.d"
    expect 0 "0 wrong" "${pieces[@]}" "$kgen" verify --deep --rebuild 1 "$KGEN_CACHE_DIR"
}
lost_reasons() {
    fake reasons
    fresh && mkdir "$KGEN_CACHE_DIR"
    said "File too large" bash -c 'ulimit -f 8; exec "$@"' sh
    if [[ $(id -u) == 0 ]] && mount -t tmpfs -o size=16k none "$KGEN_CACHE_DIR" 2>/dev/null; then
        said "No space left on device"
        mount -o remount,ro,size=16k "$KGEN_CACHE_DIR"
        said "Read-only file system"
        umount "$KGEN_CACHE_DIR"
    fi
    if [[ $(id -u) == 0 ]]; then
        chown 12345 "$KGEN_CACHE_DIR"
        said "Operation not permitted (folders and files must be owned by this user or root"
        chown 0 "$KGEN_CACHE_DIR"
    else
        chmod 500 "$KGEN_CACHE_DIR"
        said "Permission denied"
        chmod 700 "$KGEN_CACHE_DIR"
    fi
    KGEN_CACHE_DIR=$work/reasons.file && : >"$KGEN_CACHE_DIR"
    said "Not a directory"
    KGEN_CACHE_DIR=
    said "no folder"
    no_descriptors
    fresh
    build "$one" >/dev/null
    capture "$kgen" doctor
    [[ $out == *"1 kernels"* ]] || fail "doctor does not count: $out"
    printf 'junk' >"$(find "$KGEN_CACHE_DIR" -name '*.kgen')"
    capture "$kgen" doctor
    [[ $out == *"1 files or folders are refused"* && $out != *"Ready:"* ]] || fail "doctor: $out"
}

# What is there needs no folder that can be written; what is not is refused before a compiler runs.
unwritable_folder() {
    fake unwritable
    fresh
    build "$one" >/dev/null
    local layer=$KGEN_CACHE_DIR
    for KGEN_CACHE_DIR in /dev/null/x ''; do
        expect 0 "0 compiled, 1 cached" env KGEN_CACHE_LAYERS="$layer" "$kgen" build "$one" --no-variants -q
        expect 0 '"cached": 1' env KGEN_CACHE_LAYERS="$layer" "$kgen" build "$one" --no-variants -q --json
        expect 13 "choose another folder" env KGEN_CACHE_LAYERS="$layer" "$kgen" build "${kernels[@]:0:2}" --no-variants -q
        expect 13 "choose another folder" env KGEN_CACHE_LAYERS="$layer" "$kgen" build "$one" --no-variants --ninja x.ninja
    done
    KGEN_CACHE_DIR=$layer
    if [[ $(id -u) == 0 ]] && mount --bind "$layer" "$layer" 2>/dev/null; then
        mount -o remount,bind,ro "$layer"
        expect 0 "0 compiled, 1 cached" "$kgen" build "$one" --no-variants -q
        expect 13 "Read-only file system" "$kgen" build "${kernels[1]}" --no-variants -q
        umount "$layer"
    elif [[ $(id -u) != 0 ]]; then
        chmod -R a-w "$layer"
        expect 0 "0 compiled, 1 cached" "$kgen" build "$one" --no-variants -q
        expect 13 "Permission denied" "$kgen" build "${kernels[1]}" --no-variants -q
        chmod -R u+w "$layer"
    fi
    [[ $(runs unwritable) == 1 ]] || fail "unwritable: compiled $(runs unwritable) times"
}

# ---- folders of others ----------------------------------------------------------
shared_folders() {
    fake folders
    fresh && mkdir -m 0777 "$KGEN_CACHE_DIR" && chmod 777 "$KGEN_CACHE_DIR"
    capture "$kgen" doctor
    [[ $out == *"warning: others can write into this folder"* ]] || fail "0777 without a word: $out"
    mkdir "$work/victim" && ln -s "$work/victim/file" "$KGEN_CACHE_DIR/lock"
    build "$one" >/dev/null || fail "a linked lock stops the build"
    [[ ! -e $work/victim/file ]] || fail "the link of a lock was followed"
    # Where all may write, the first who comes has a part for himself: the others hear why.
    [[ $(id -u) == 0 ]] || return 0
    fresh && mkdir -m 1777 "$KGEN_CACHE_DIR"
    build "$one" >/dev/null
    local part
    part=$(dirname "$(find "$KGEN_CACHE_DIR" -name '*.kgen')")
    rm "$part"/*.kgen && chown 12345 "$part"
    expect 13 "Operation not permitted (folders and files must be owned by this user or root" \
        "$kgen" build "$one" --no-variants -q
    [[ -z $(find "$part" -name '*.kgen') ]] || fail "written into another user's part"
}

# ---- what a killed process leaves --------------------------------------------------
killed_process() {
    fake hang "sleep 1000 & echo \$! >$work/hung; wait"
    fresh
    local pid hung i
    "$kgen" build "$one" --no-variants >/dev/null 2>&1 & pid=$!
    await test -s "$work/hung"
    hung=$(<"$work/hung")
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null || :
    for ((i = 0; i < 100; i++)); do kill -0 "$hung" 2>/dev/null || break; sleep 0.05; done
    ! kill -0 "$hung" 2>/dev/null || fail "a compiler's child lives on after kgen was killed"
    local left=("$TMPDIR"/kgen-*)
    [[ -d ${left[0]} ]] || fail "killed: no folder was in use"
    fake next
    build "$one" >/dev/null # too young to be swept
    [[ -d ${left[0]} ]] || fail "killed: a young folder was swept"
    touch -d '2 minutes ago' "${left[@]}"
    fresh
    build "$one" >/dev/null
    [[ ! -d ${left[0]} ]] || fail "killed: ${left[0]} stays"
}

# ---- compilers that misbehave ------------------------------------------------------
odd_compilers() {
    fresh
    fake pipe 'mkfifo kgen_kernel.out; exit 0'
    expect 8 "no plain file" timeout 20 "$kgen" build "$one" --no-variants -q
    fake nothing 'exit 0'
    expect 8 "no object came of it" "$kgen" build "$one" --no-variants -q
    fake daemon '(setsid sleep 20 &) >/dev/null' # it keeps the error stream
    local begin=$SECONDS
    expect 0 "1 compiled" "$kgen" build "$one" --no-variants -q
    ((SECONDS - begin < 15)) || fail "a daemon of the compiler holds up the build"
}

# The same kernel by another compiler has another key: a diff says what of it has changed.
changed_kernel() {
    fake before
    fresh
    local old=$KGEN_CACHE_DIR
    build "${kernels[@]:0:2}" >/dev/null
    fresh
    build "${kernels[1]}" >/dev/null
    fake after "\"$clang\" \"\$@\" -O0; exit"
    build "$one" >/dev/null
    expect 0 "0 only in $old, 0 only in $KGEN_CACHE_DIR, 1 changed, 1 the same" "$kgen" report \
        --diff "$old" "$KGEN_CACHE_DIR"
    [[ $out =~ ^"! ${one/@/ @}"$'\n  '.*code_bytes\ [0-9]+\ '-> '[0-9]+ ]] || fail "diff: $out"
    expect 0 '"code_bytes": [' "$kgen" report --diff "$old" "$KGEN_CACHE_DIR" --json
}

# A kernel whose values lie in memory is none, for the next one who asks for it too; nor is one kernel
# two objects of one compiler.
spilling_compiler() {
    local amd="${one%@*}@gfx942"
    local -x KGEN_ROCM_PREFIX=$work/none
    fake fickle "\"$clang\" \"\$@\" -O\$((\$(wc -l <\"$work/runs.fickle\") - 1)); exit"
    fresh
    build "$one" >/dev/null
    expect 15 "${one%@*} @cpu:cdna3: code: " "$kgen" verify --deep --rebuild 1 "$KGEN_CACHE_DIR"
    [[ ! -e /opt/rocm ]] && "$clang" --print-targets | grep amdgcn >/dev/null || return 0
    fake spills "\"$clang\" \"\$@\" -O0; exit"
    expect 9 "bytes of scratch" "$kgen" build "$amd" --no-variants -q
    expect 0 "1 compiled" "$kgen" build "$amd" --no-variants -q --allow-spills
    expect 9 "bytes of scratch" "$kgen" build "$amd" --no-variants -q
    expect 9 "bytes of scratch" env KGEN_CLANG=/none "$kgen" build "$amd" --no-variants -q
    expect 9 "bytes of scratch" "$kgen" verify --deep --rebuild 0 "$KGEN_CACHE_DIR"
}

# A compiler that is found and makes something else: the self-test says so, and which one it was.
failing_self_test() {
    local want=8
    fake wrong 'for word; do [[ ${last:-} != -o ]] || cp /bin/true "$word"; last=$word; done; exit 0'
    fresh
    capture "$kgen" doctor
    [[ $code == 0 ]] || want=$code # a compiler that is missing comes first
    expect "$want" "clang 19.1.7: failed: " "$kgen" doctor --self-test
    [[ $(runs wrong) == 1 ]] || fail "self-test: $(runs wrong) runs"
}

# ---- input ---------------------------------------------------------------------------
odd_input() {
    fake input
    fresh
    local tuning=$work/rows.jsonl
    : >"$tuning"
    KGEN_TUNING=$tuning expect 0 "0 added" "$kgen" tuning import <(sleep 0.3)
    expect 4 "layer=x: user, system or shipped" "$kgen" tuning list --layer x
    expect 13 "no plain file" "$kgen" tune --simulate "$work"
    POSIXLY_CORRECT=1 expect 0 "1 compiled" "$kgen" build "$one" --no-variants -q
    "$kgen" build "${kernels[1]}" --no-variants 2>&- >/dev/null || fail "stderr closed: exit code $?"
    ! grep -qaE "[a-z]{6}" "$KGEN_CACHE_DIR/lock" || fail "progress was written into the lock"
}

# The name of a kernel is printed: an entry that would write to a terminal is no entry.
terminal_escapes() {
    fake escapes
    fresh
    build "$one" >/dev/null
    local entry
    entry=$(find "$KGEN_CACHE_DIR" -name '*.kgen')
    LC_ALL=C sed -i 's/scatter:op=draft/\x1b[31m:op=draft_/' "$entry"
    expect 0 "0 kernels" "$kgen" list
    [[ $out != *$'\x1b'* ]] || fail "list prints an escape"
}

# Waiting costs a descriptor a process, however many kernels wait: full, more of them than a process
# may have.
many_wait() {
    command -v python3 >/dev/null || return 0
    fake many
    fresh
    local holder last=$((full ? 1215 : 55))
    mkdir -m 700 "$KGEN_CACHE_DIR"
    (umask 077 && exec python3 -c '
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(100)' "$KGEN_CACHE_DIR/lock") >"$work/held" & holder=$!
    await test -s "$work/held"
    seq -f "attn:d=64,g=1,window=%.0f @cpu:cdna3" 16 "$last" >"$work/many.manifest"
    expect 124 "" bash -c 'ulimit -n 20; exec timeout "$@"' sh $((full ? 20 : 2)) "$kgen" build \
        -m "$work/many.manifest" --no-variants -q
    [[ -z $errors && $(runs many) == 0 ]] || fail "many: $(runs many) compilations; $errors"
    kill "$holder"
    wait "$holder" 2>/dev/null || :
}

# Machines that share a manifest: each kernel is built by one of them.
shards() {
    fake shards
    fresh
    printf '%s\n' "${kernels[@]}" | sed 's/@/ @/' >"$work/all.manifest"
    expect 64 "--shard 3/2: I/N expected" "$kgen" build "$one" --shard 3/2
    expect 64 "--shard 1/2x: I/N expected" "$kgen" build "$one" --shard 1/2x
    expect 0 "2 compiled, 0 cached" "$kgen" build -m "$work/all.manifest" --no-variants -q --shard 1/2
    expect 0 "1 compiled, 0 cached" "$kgen" build -m "$work/all.manifest" --no-variants -q --shard 2/2
    expect 0 "0 compiled, 3 cached" "$kgen" build -m "$work/all.manifest" --no-variants -q
    expect 0 "0 compiled, 0 cached" "$kgen" build -m "$work/all.manifest" --no-variants -q --shard 4/4
}

for test in shards budget_and_resume storm_without_a_parent storm_of_several_kernels slow_compile compiler_gone \
    hidden_knobs faulty_disk compiler_identity amd_by_clang lost_reasons injected_reasons short_counts unwritable_folder \
    shared_folders killed_process odd_compilers changed_kernel spilling_compiler failing_self_test odd_input \
    terminal_escapes many_wait; do
    [[ -z ${KGEN_FAULT:-} || $KGEN_FAULT == "$test" ]] || continue
    begin=$(date +%s%N)
    $test
    printf '%-26s %5d ms\n' "$test" $((($(date +%s%N) - begin) / 1000000))
done
finish
