#!/bin/sh
# The systemd units as systemd reads them.
#   units.sh        prints TAP; run from the repository's root
unit=deploy/systemd/zerod@.service
if ! command -v systemd-analyze >/dev/null || ! systemd-analyze security --help 2>&1 | grep -q offline; then
    echo "1..0 # SKIP there is no systemd-analyze that works offline"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_RUNTIME_DIR="$work"
tell() { # NUMBER CODE NAME
    if [ "$2" -eq 0 ]; then echo "ok $1 - $3"; else echo "not ok $1 - $3"; sed 's/^/# /' "$work/said"; fi
}
# Programs that are here, and without the pages, which are not installed.
sed 's,/usr/local/bin/zerod\(ctl\)\?,/bin/true,; s,/usr/bin/mpirun,/bin/true,; /^Documentation=/d' "$unit" >"$work/zerod@.service"
cp "$work/zerod@.service" "$work/zerod@test.service"
# What it says of other units of this machine is not ours.
timeout 60 systemd-analyze verify "$work/zerod@test.service" 2>&1 | grep 'zerod@' >"$work/said"
[ ! -s "$work/said" ]; tell 1 $? "$unit has nothing to complain about"
timeout 60 systemd-analyze security --no-pager --offline=true --threshold=30 "$work/zerod@test.service" >"$work/said" 2>&1
tell 2 $? "$unit is exposed by at most 3.0 of 10"
echo 1..2
