#!/usr/bin/env bash
# The cache on a real NFS: Linux's own server and client in a kernel that runs as a process (user-mode-linux), which
# starts on_nfs.sh as its first program and sees this machine's files.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
PATH=$PATH:/usr/sbin:/sbin
for need in linux.uml rpc.nfsd rpc.mountd exportfs mount.nfs4 modprobe ip; do
    command -v $need >/dev/null || { echo "skipped: no $need" && exit 77; }
done
[[ ${KGEN_TEST_LEVEL:-normal} == full ]] || { echo "only in ./run test --full" && exit 77; }
[[ $(id -u) == 0 ]] || { echo "skipped: root alone can start servers" && exit 77; }
# Its first program takes its environment from here.
env -i TMPDIR=/dev/shm HOME="$work" PATH="$PATH" timeout 850 linux.uml mem=1G rootfstype=hostfs rw init="$here/on_nfs.sh" con0=null,fd:1 con=null \
    quiet KGEN="$kgen" KGEN_CLANG="$(command -v "${KGEN_CLANG:-clang}")" </dev/null >"$work/console" 2>&1 || true
tr -d '\r' <"$work/console" | grep -E '^(FAIL|NFS|on_nfs)|skipped' || true
grep -qE '^on_nfs.sh: [0-9]+ commands, 0 failures' "$work/console" || { tail -n 20 "$work/console" && exit 1; }
