#!/usr/bin/env bash
# Installs the named Debian or Ubuntu packages that are missing: system.sh PACKAGE ...
#
# Nothing missing: no apt call, exit 0. Something missing: installed by root or by sudo without a
# password; any other user gets the one line to run, exit 1. `a|b` takes either (the first is
# installed if neither is there).
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
trap 'rm -f "$log"' EXIT
apt() { "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 "$@"; }
if ! { apt update && apt install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "system: apt-get could not install ${missing[*]}: its last lines stand above" >&2
    exit 1
fi
