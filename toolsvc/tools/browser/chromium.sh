#!/bin/sh
# Stands in Chromium's place when Playwright starts it: gives it a home inside its own profile, and,
# where the service is root, the account that pages may run as.
#
# BROWSER_PROGRAM  what to start
# BROWSER_ACCOUNT  uid:gid to become; empty = stay who we are
set -eu
for word; do
    case $word in --user-data-dir=*) HOME=${word#*=} ;; esac
done
export HOME
if [ -z "$BROWSER_ACCOUNT" ]; then exec "$BROWSER_PROGRAM" "$@"; fi
chown "$BROWSER_ACCOUNT" "$HOME"
exec setpriv --reuid="${BROWSER_ACCOUNT%:*}" --regid="${BROWSER_ACCOUNT#*:}" --clear-groups \
    "$BROWSER_PROGRAM" "$@"
