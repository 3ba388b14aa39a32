#!/bin/sh
# The systemd units as systemd reads them.
#   units.sh        prints TAP; run from the repository's root
unit=deploy/systemd/zerod@.service
if ! command -v systemd-analyze >/dev/null || ! systemd-analyze security --help 2>&1 | grep -q offline; then
    echo "1..0 # SKIP there is no systemd-analyze that works offline"
    exit 0
fi
. tests/support/tap.sh
scratch_folder
tell_said() { # CODE NAME
    tell "$1" "$2"
    [ "$1" -eq 0 ] || sed 's/^/# /' "$work/said"
}
# Programs that are here, and without the pages, which are not installed.
sed 's,/usr/local/bin/zerod\(ctl\)\?,/bin/true,; s,/usr/bin/mpirun,/bin/true,; /^Documentation=/d' "$unit" >"$work/zerod@.service"
cp "$work/zerod@.service" "$work/zerod@test.service"
# What it says of other units of this machine is not ours.
timeout 60 systemd-analyze verify "$work/zerod@test.service" 2>&1 | grep 'zerod@' >"$work/said"
[ ! -s "$work/said" ]; tell_said $? "$unit has nothing to complain about"
timeout 60 systemd-analyze security --no-pager --offline=true --threshold=30 "$work/zerod@test.service" >"$work/said" 2>&1
tell_said $? "$unit is exposed by at most 3.0 of 10"
tests_end
