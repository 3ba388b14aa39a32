#!/usr/bin/env bash
# mpirun.sh ARGUMENT...: mpirun with these arguments, which ends once its ranks have.
#
# When the link to another host is dead, or that host is, the ranks of this host end by themselves (75, docs/clusters.md), but
# mpirun then waits for its daemon there, eight minutes and more. Here it is ended when none of the ranks that it had on this host
# is left for ZEROD_LAUNCHER_SECONDS (10), and the exit code is 75: start the same command again. Needs a rank on this host.
# Signals are passed on. Other exit codes are mpirun's.
set -u
seconds=${ZEROD_LAUNCHER_SECONDS:-10}
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
# Ends with 75 when it had to end mpirun, and how it reaches the other hosts.
look_after() {
    local had='' gone=0
    trap - HUP INT TERM USR1 USR2
    while sleep 1; do
        if has_ranks; then
            had=yes gone=0
        elif [[ $had ]] && ((++gone >= seconds)); then
            trap '' TERM
            echo "mpirun.sh: the ranks of this host ended $gone s ago, and mpirun waits for another host: it is ended" >&2
            kill -KILL $(children) "$pid" 2>/dev/null
            exit 75
        fi
    done
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
[[ $ended -ne 75 ]] || code=75
exit "$code"
