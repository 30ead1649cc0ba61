#!/bin/bash
# The first program of test_nfs.sh's kernel: an NFS server, mounts of it, and what a cache there has to bear.
mount -t proc proc /proc
mount -t tmpfs tmpfs /mnt
mount -t tmpfs tmpfs /run
mkdir -p /mnt/{tmp,server,closed,4.2,other,3,squashed,soft,modules/lib/modules}
ln -s "/usr/lib/uml/modules/$(uname -r)" /mnt/modules/lib/modules/
for module in nfsd nfsv4 nfsv3; do modprobe -d /mnt/modules $module; done
mount -t tmpfs tmpfs /var/lib/nfs
mkdir -p /var/lib/nfs/{sm,sm.bak,v4recovery,rpc_pipefs,nfsdcld}
touch /var/lib/nfs/{etab,rmtab,state}
ip link set lo up
export TMPDIR=/mnt/tmp HOME=/mnt/tmp
trap 'sync; echo o >/proc/sysrq-trigger; sleep 9' EXIT
(
    # shellcheck source=common.sh
    source "$(dirname "$0")/common.sh" "$KGEN"
    # shellcheck source=fake_compiler.sh
    source "$here/fake_compiler.sh"
    fake compiler
    # shellcheck source=nfs_drills.sh
    source "$here/nfs_drills.sh"
    finish
) 2>&1
