# shellcheck shell=bash
# Sourced by on_nfs.sh: the server's folders are /mnt/server and /mnt/closed.
kernels=(scatter:op={draft_lens,cache_locs,assign_locs}@cpu:cdna3)
build() { "$kgen" build --no-variants -q "$@"; }
serve() {
    mount -t nfsd nfsd /proc/fs/nfsd
    # A server that starts gives no locks for a while: to its old clients only.
    echo 10 | tee /proc/fs/nfsd/nfsv4{lease,grace}time >/dev/null
    echo 1 >/proc/sys/fs/nfs/nlm_grace_period
    rpcbind 2>/dev/null && rpc.statd --no-notify # of version 3; 4 needs neither
    exportfs -o rw,no_root_squash,fsid=0,no_subtree_check,insecure 127.0.0.1:/mnt/server
    exportfs -o rw,root_squash,fsid=1,no_subtree_check,insecure 127.0.0.1:/mnt/closed
    rpc.nfsd 4
    rpc.mountd
    echo Y >/proc/fs/nfsd/v4_end_grace
    # Mounts that share nothing, as those of two machines do.
    mount -t nfs4 -o vers=4.2 127.0.0.1:/ /mnt/4.2
    mount -t nfs4 -o vers=4.2,nosharecache 127.0.0.1:/ /mnt/other
    mount -t nfs4 -o vers=4.2,nosharecache,soft,timeo=5,retrans=1 127.0.0.1:/ /mnt/soft
    mount -t nfs -o vers=3 127.0.0.1:/mnt/server /mnt/3 || echo "NFS 3: not tried"
}

# in_use HERE THERE: a folder that two machines write.
in_use() {
    local cache=cache-${1##*/} before i pids=()
    before=$(runs compiler)
    for i in {1..4}; do
        KGEN_CACHE_DIR=$([[ $((i % 2)) == 0 ]] && echo "$1" || echo "$2")/$cache build "${kernels[@]}" >"$work/said.$i" 2>&1 & pids[i]=$!
    done
    for i in {1..4}; do wait "${pids[i]}" || fail "$1: of four: $(cat "$work/said.$i")"; done
    (($(runs compiler) - before == ${#kernels[@]})) || fail "$1: four processes compile $(($(runs compiler) - before)) times"
    for i in "$1" "$2"; do
        KGEN_CLANG=/none expect 0 "0 compiled, ${#kernels[@]} cached" build "${kernels[@]}" --cache-dir "$i/$cache"
        expect 0 "${#kernels[@]} kernels" "$kgen" list --cache-dir "$i/$cache"
        expect 0 "0 wrong" "$kgen" verify --deep --rebuild 0 "$i/$cache"
    done
    expect 0 "1 of 3 kernels" "$kgen" prune --max-count 2 --cache-dir "$1/$cache"
    expect 0 "cached, 0 failed" build "${kernels[@]}" --cache-dir "$2/$cache" # it may see for a while what is gone
    expect 0 "0 failed" build "${kernels[@]}" --cache-dir "$1/$cache"
    expect 0 "3 kernels" "$kgen" list --cache-dir "$1/$cache"
    [[ -z $(find "/mnt/server/$cache" -name '.tmp-*' -o -name '.nfs*') ]] || fail "$1: $(find "/mnt/server/$cache")"
}

# A machine that dies while it compiles holds nobody up.
killed() {
    local pid begin
    fake slow 'sleep 20'
    "$kgen" build --no-variants -q "${kernels[0]}" --cache-dir /mnt/4.2/killed & pid=$!
    disown $pid # the shell says nothing of its death
    await has_run slow 1
    kill -9 $pid
    fake compiler
    begin=$SECONDS
    expect 0 "1 compiled" build "${kernels[0]}" --cache-dir /mnt/other/killed
    ((SECONDS - begin < 10)) || fail "a lock outlives its process: $((SECONDS - begin)) s"
}

# mapped FILE: how often a look-up in this bundle maps it.
mapped() {
    KGEN_CLANG=/none KGEN_CACHE_LAYERS=$1 KGEN_CACHE_DIR=$work/none strace -f -y -e trace=mmap -o "$work/trace" \
        "$kgen" build --no-variants -q "${kernels[@]}" >"$work/said" || fail "$1: $(cat "$work/said")"
    grep -c "<$1>" "$work/trace" || true
}

# A bundle is read, not mapped; what another machine does to it meanwhile is a miss and no signal.
bundle_of_a_server() {
    local i code
    expect 0 "3 kernels" "$kgen" pack -o "$1/all.kgb" --cache-dir "/mnt/4.2/cache-4.2"
    cp "$1/all.kgb" "$work/all.kgb"
    KGEN_CLANG=/none KGEN_CACHE_LAYERS=$1/all.kgb expect 0 "3 cached" build "${kernels[@]}" --cache-dir "$work/none"
    expect 0 "3 kernels" "$kgen" verify "$1/all.kgb"
    if command -v strace >/dev/null; then
        [[ $(mapped "$work/all.kgb") == 1 ]] || fail "a bundle on a local disk is not mapped: $(mapped "$work/all.kgb")"
        [[ $(mapped "$1/all.kgb") == 0 ]] || fail "$1: a bundle is mapped"
    fi
    (
        set +e
        while sleep 0.02; do
            cp "$work/all.kgb" /mnt/4.2/all.kgb
            sleep 0.02
            truncate -s 5000 /mnt/4.2/all.kgb
            sleep 0.02
            rm -f /mnt/4.2/all.kgb
        done
    ) 2>/dev/null & i=$!
    for _ in {1..10}; do
        code=0
        KGEN_CACHE_LAYERS=$1/all.kgb build "${kernels[@]}" --cache-dir "$work/own" >"$work/said" 2>&1 || code=$?
        rm -rf "$work/own"
        ((code == 0)) || fail "$1: exit code $code: $(cat "$work/said")"
        ran=$((ran + 1))
    done
    kill $i
    wait $i 2>/dev/null || true
    rm -f /mnt/4.2/all.kgb
}

# The server goes away: kernels are compiled, the reason is said; it comes back: all is there.
server_gone() {
    local begin=$SECONDS
    expect 0 "3 cached" build "${kernels[@]}" --cache-dir /mnt/soft/cache-4.2
    cp "$work/all.kgb" /mnt/4.2/all.kgb
    rpc.nfsd 0
    KGEN_CACHE_LAYERS=/mnt/soft/all.kgb expect 0 "1 compiled" build "${kernels[0]}" --cache-dir "$work/alone"
    capture build "${kernels[0]}" --cache-dir /mnt/soft/cache-4.2
    [[ $code == 13 && $out$errors == *"put/output error"* ]] || fail "no server: exit code $code, $out$errors"
    capture "$kgen" doctor --cache-dir /mnt/soft/cache-4.2
    [[ $out == *"put/output error"* ]] || fail "doctor, no server: $out$errors"
    ((SECONDS - begin < 120)) || fail "no server: $((SECONDS - begin)) s"
    rpc.nfsd 4
    expect 0 "3 cached" build "${kernels[@]}" --cache-dir /mnt/soft/cache-4.2
    KGEN_CLANG=/none KGEN_CACHE_LAYERS=/mnt/soft/all.kgb expect 0 "3 cached" build "${kernels[@]}" --cache-dir "$work/none"
}

# root is nobody there: the folder is another's.
squashed() {
    mount -t nfs4 -o vers=4.2,nosharecache 127.0.0.1:/mnt/closed /mnt/squashed 2>/dev/null ||
        mount -t nfs -o vers=3 127.0.0.1:/mnt/closed /mnt/squashed || { echo "NFS root_squash: not tried" && return; }
    expect 13 "Permission denied" build "${kernels[0]}" --cache-dir /mnt/squashed/cache
    chmod 1777 /mnt/closed
    expect 13 "must be owned by this user or root" build "${kernels[0]}" --cache-dir /mnt/squashed/cache
}

drill() {
    local begin=$SECONDS
    "$@"
    echo "NFS $*: $((SECONDS - begin)) s"
}

serve
findmnt -t nfs,nfs4 -o TARGET,FSTYPE,OPTIONS -n | sed 's/^/NFS /'
drill in_use /mnt/4.2 /mnt/other
echo 0 >/proc/sys/fs/leases-enable # to ask a delegation back takes a client of version 3 seconds
! mountpoint -q /mnt/3 || drill in_use /mnt/3 /mnt/4.2
drill killed
drill bundle_of_a_server /mnt/other
! mountpoint -q /mnt/3 || drill bundle_of_a_server /mnt/3
drill server_gone
drill squashed
