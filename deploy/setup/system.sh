#!/usr/bin/env bash
# Installs the named Debian or Ubuntu packages that are missing: system.sh PACKAGE ...
#
# Nothing missing: no apt call, exit 0. Something missing: installed by root or by sudo without a
# password; any other user gets the one line to run, exit 1. `a|b` takes either (the first is
# installed if neither is there). A package's service (PostgreSQL, Prometheus) is neither started now
# nor at the next boot: who needs one starts it, where it wants it.
set -euo pipefail

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=()
for wish in "$@"; do
    IFS='|' read -ra either <<<"$wish"
    for package in "${either[@]}"; do
        if command -v dpkg-query >/dev/null && installed "$package"; then continue 2; fi
    done
    missing+=("${either[0]}")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

if ! command -v apt-get >/dev/null; then
    echo "system: this is neither Debian nor Ubuntu: install by your own means: ${missing[*]}" >&2
    exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
    as_root=(env)
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo -n env)
else
    echo "system: packages are missing; run this once, then try again:" >&2
    echo "sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
fi

echo "system: installing ${missing[*]}"
log=$(mktemp)
policy=/usr/sbin/policy-rc.d   # Debian asks it before a package starts its service; 101 says no
ours=no
tidy() {
    rm -f "$log"
    if [ "$ours" = yes ]; then "${as_root[@]}" rm -f "$policy"; fi
}
trap tidy EXIT
if [ ! -e "$policy" ]; then
    ours=yes
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi
apt() { "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 "$@"; }
if ! { apt update && apt install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "system: apt-get could not install ${missing[*]}: its last lines stand above" >&2
    exit 1
fi
if command -v systemctl >/dev/null; then
    for package in "${missing[@]}"; do
        "${as_root[@]}" systemctl disable --quiet "$package.service" 2>/dev/null || true
    done
fi
