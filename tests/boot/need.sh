#!/bin/bash
# Installs what the tests of the package need and this system lacks.
set -euo pipefail
declare -A packages=(
    [curl]=curl [dpkg-shlibdeps]=dpkg-dev [lintian]=lintian [man]=man-db [nsenter]=util-linux
    [strip]=binutils [systemd-analyze]=systemd
)
missing=()
for program in "${!packages[@]}"; do
    command -v "$program" >/dev/null || missing+=("${packages[$program]}")
done
[ ${#missing[@]} -eq 0 ] && exit
export DEBIAN_FRONTEND=noninteractive
# A mirror that is slow or busy is asked again, and so is a lock that another installation holds.
patiently=(-o Acquire::Retries=5 -o DPkg::Lock::Timeout=120)
apt-get update -qq "${patiently[@]}"
# systemd must not take over the system that lends its files.
apt-get install -qq -y --no-install-recommends "${patiently[@]}" "${missing[@]}"
