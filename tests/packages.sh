#!/bin/sh
# Installs what some tests need of the system, where that is possible; without it those tests are skipped and say so.
set -u

missing=""
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || missing="$missing postgresql"
command -v chromium >/dev/null || missing="$missing chromium"
command -v gcc >/dev/null || missing="$missing gcc libc6-dev"
command -v systemd-analyze >/dev/null || missing="$missing systemd"
if [ "$(id -u)" = 0 ]; then # the tests start an engine of their own
    command -v dockerd >/dev/null || missing="$missing docker.io"
    command -v busybox >/dev/null || missing="$missing busybox-static"
fi
[ -z "$missing" ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing for the tests:$missing"
    export DEBIAN_FRONTEND=noninteractive
    export RUNLEVEL=1 # starts no services
    apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing >/dev/null && exit 0
fi
echo "not here, so tests that need them are skipped:$missing"
