#!/usr/bin/env bash
# mpirun.sh ARGUMENT...: mpirun with these arguments, which ends once its ranks have.
#
# When the link to another host is dead, or that host is, the ranks of this host end by themselves (75, docs/clusters.md), but
# mpirun then waits for its daemon there, eight minutes and more. Ranks that end so say it in a file (ZEROD_LAUNCHER_FILE): here
# mpirun is ended when none of those of this host is left, and the exit code is theirs: after 75 start the same
# command again. Where they said nothing it is ended after ZEROD_LAUNCHER_SECONDS (10), with 75. Needs a rank on this host.
# Signals are passed on. Other exit codes are mpirun's.
set -u
seconds=${ZEROD_LAUNCHER_SECONDS:-10}
ZEROD_LAUNCHER_FILE=$(mktemp) && export ZEROD_LAUNCHER_FILE
trap 'rm -f "$ZEROD_LAUNCHER_FILE"' EXIT
mpirun "$@" <&0 &
pid=$!
for each in HUP INT TERM USR1 USR2; do trap "kill -$each $pid 2>/dev/null" "$each"; done

children() { cat /proc/"$pid"/task/*/children 2>/dev/null; }
has_ranks() {
    local child
    for child in $(children); do
        grep -qz '^\(OMPI_COMM_WORLD_RANK\|PMIX_RANK\)=' "/proc/$child/environ" 2>/dev/null && return 0
    done
    return 1
}
# Ends mpirun when it has to, and how it reaches the other hosts; its own exit code is then that of the ranks.
look_after() {
    local had='' gone=0 code=75 how="ended $seconds s ago" # gone: halves of a second
    trap - HUP INT TERM USR1 USR2 EXIT
    while sleep 0.5; do
        if has_ranks; then
            had=yes gone=0
        elif [[ $had ]] && ((++gone >= 2)) && [[ -s $ZEROD_LAUNCHER_FILE ]]; then
            read -r code <"$ZEROD_LAUNCHER_FILE"
            how='ended by themselves'
            break
        elif [[ $had ]] && ((gone >= 2 * seconds)); then
            break
        fi
    done
    trap '' TERM
    echo "mpirun.sh: the ranks of this host $how, and mpirun waits for another host: it is ended" >&2
    kill -KILL $(children) "$pid" 2>/dev/null
    exit "$code"
}
look_after &
watcher=$!
code=0
while :; do # a signal that is passed on ends a wait, but not mpirun
    wait "$pid"
    code=$?
    kill -0 "$pid" 2>/dev/null || break
done
kill "$watcher" 2>/dev/null
ended=0
wait "$watcher" 2>/dev/null || ended=$?
[[ $ended -eq 0 || $ended -gt 128 ]] || code=$ended
exit "$code"
