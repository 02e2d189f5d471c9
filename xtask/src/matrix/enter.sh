#!/bin/sh
# Enters another distribution's root: unshare -m -p -f --kill-child sh enter.sh ROOT CELL COMMAND...
#
# It uses pivot_root instead of chroot, because the kernel makes no user namespace for a process in a
# chroot. CELL is at /cell inside. All mounts and remaining processes end with the namespaces.
set -e
root=$1 cell=$2
shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
# udev makes this device usable for ordinary users, and so must this script.
if [ -e "$root/dev/fuse" ]; then
    rm -f "$cell/fuse"
    mknod -m 666 "$cell/fuse" c 10 229
    mount --bind "$cell/fuse" "$root/dev/fuse"
fi
mkdir -p "$root/cell"
mount --bind "$cell" "$root/cell"
mount --bind "$cell/tmp" "$root/tmp"
cd "$root"
pivot_root . .
umount -l .
exec chroot . env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root USER=root LOGNAME=root \
    LANG=C.UTF-8 TERM=dumb SHELL=/bin/bash "$@"
