#!/bin/bash
# A machine of its own with a real systemd as PID 1, in namespaces, from this system's files.
#
#   unshare --mount --propagation private machine.sh FOLDER
#
# FOLDER/share appears inside as /mnt. FOLDER/pid gets the number of PID 1 as seen from here.
# Writes go to memory and are gone with the machine, which ends when systemd does, or when this
# script is killed. Needs root, overlayfs and cgroup2; says which of them is missing.
set -euo pipefail
folder=${1:?the folder of the machine}
here=$(dirname "$(realpath "$0")")
# systemd and this script's own paths must not depend on who starts it.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

# This mount namespace is ours alone: what is mounted here needs no tidying up.
work=$folder/work
mkdir -p "$work" "$folder/share"
mount -t tmpfs -o mode=0755 machine "$work"
mkdir "$work"/{upper,scratch,root,cgroup}
mount -t overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/scratch" machine "$work/root"
mount -t cgroup2 machine "$work/cgroup"

# A machine of nobody: no services, mounts or users' settings of the one that lends its files.
root=$work/root
rm -rf "$root"/etc/systemd/{system,user}/* "$root"/usr/local/lib/systemd "$root"/var/log/journal
rm -f "$root"/etc/fstab "$root"/etc/crypttab
# An image for containers keeps packages from starting and restarting their services.
rm -f "$root"/usr/sbin/policy-rc.d
tr -d - < /proc/sys/kernel/random/uuid > "$root/etc/machine-id"
echo mono-machine > "$root/etc/hostname"
# Every change of a package would index all manual pages again.
rm -f "$root/var/lib/man-db/auto-update"
# The journal in memory, and all of it: the test reads it back.
mkdir -p "$root/etc/systemd/journald.conf.d"
printf '[Journal]\nStorage=volatile\nRateLimitBurst=0\nForwardToConsole=no\n' \
    > "$root/etc/systemd/journald.conf.d/machine.conf"

# systemd wants to be at the root of a control group hierarchy; it gets a branch as its root.
group=$work/cgroup/mono-machine-$$
mkdir "$group"
tidy() {
    # The kernel lets the last process go a moment after its end was seen.
    for _ in $(seq 400); do
        find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
        [ -d "$group" ] || return 0
        sleep 0.05
    done
    echo "machine: $group is still in use" >&2
}
trap tidy EXIT

(
    echo $BASHPID > "$group/cgroup.procs"
    exec unshare --pid --fork --kill-child --mount --uts --ipc --net --cgroup \
        bash "$here/init.sh" "$root" "$folder/share"
) &
outer=$!
trap '{ kill -KILL $outer && wait; } 2>/dev/null || true; tidy' EXIT
trap 'exit 143' TERM INT HUP
# `unshare` waits for one child: PID 1, which is systemd once everything is laid out.
for _ in $(seq 3000); do
    # The list ends without a line's end, which `read` calls a failure.
    read -r first _ < "/proc/$outer/task/$outer/children" || true
    [ "$(cat "/proc/${first:-none}/comm" 2>/dev/null)" = systemd ] && break
    first=
    sleep 0.02
done
echo "${first:?the machine has no systemd}" > "$folder/pid.new"
mv "$folder/pid.new" "$folder/pid"
wait $outer
