#!/bin/bash
# PID 1 of the machine until systemd takes over: lays out what a kernel's initramfs would.
#
#   init.sh ROOT SHARE     (started by machine.sh in namespaces of its own)
set -euo pipefail
root=$1 share=$2
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"

# Nothing masks parts of it: a user namespace may mount /proc anew only where all of one is seen.
mount -t proc -o nosuid,nodev,noexec proc proc
mount -t sysfs -o nosuid,nodev,noexec,ro sysfs sys
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=0755,nosuid,nodev run run
mount -t tmpfs -o mode=1777,nosuid,nodev tmp tmp
mount --bind "$share" mnt

# Device nodes can't be made in every place that tests run in, so the outer ones are shown.
mount -t tmpfs -o mode=0755,nosuid dev dev
for device in null zero full random urandom tty; do
    : > "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,mode=0620,gid=5,ptmxmode=0666 devpts dev/pts
mount -t tmpfs -o mode=1777,nosuid,nodev shm dev/shm
ln -s pts/ptmx dev/ptmx
for link in fd:/proc/self/fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do
    ln -s "${link#*:}" "dev/${link%%:*}"
done

mkdir -p .before
pivot_root . .before
umount -l /.before
rmdir /.before
# As a machine has it: systemd lays out credentials in a namespace from where they come back.
mount --make-rshared /
# `container` keeps systemd from what only real hardware has.
exec env -i container=mono-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --unit=basic.target --log-target=journal
