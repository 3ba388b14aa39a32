#!/usr/bin/env bash
# mpirun.sh ARGUMENT...: mpirun with these arguments, which ends once its ranks have.
#
# When the link to another host is dead, or that host is, the ranks of this host end by themselves (75, docs/clusters.md), but
# mpirun then waits for its daemon there, eight minutes and more; and one whose rank is killed amid its start may stand still.
# Ranks that end by themselves say so in a file (ZEROD_LAUNCHER_FILE): here mpirun is ended when none of those of this host is
# left, and the exit code is theirs: after 75 start the same command again. Where they said nothing it is ended after
# ZEROD_LAUNCHER_SECONDS (10), with 75. Needs a rank on this host.
# Signals are passed on, and when this script is killed mpirun is too. Other exit codes are mpirun's.
set -u
seconds=${ZEROD_LAUNCHER_SECONDS:-10}
ZEROD_LAUNCHER_FILE=$(mktemp) && export ZEROD_LAUNCHER_FILE
trap 'rm -f "$ZEROD_LAUNCHER_FILE"' EXIT
mpirun "$@" <&0 &
pid=$!
for each in HUP INT TERM USR1 USR2; do trap "kill -$each $pid 2>/dev/null" "$each"; done

children() { cat /proc/"$pid"/task/*/children 2>/dev/null; }
# Page faults of children whose code it has asked for: not 0, there was one.
asked() {
    local stat
    read -r stat 2>/dev/null <"/proc/$pid/stat" || return
    set -- ${stat##*) }
    echo "$9"
}
# What mpirun has started: a rank, another child (ssh to a host), one that has ended; "none" yet. $1: what asked() said before it.
look() {
    local child found=none
    for child in $(children); do
        if grep -qz '^\(OMPI_COMM_WORLD_RANK\|PMIX_RANK\)=' "/proc/$child/environ" 2>/dev/null; then
            echo rank
            return
        elif cmp -s "/proc/$child/cmdline" "/proc/$pid/cmdline"; then
            continue # mpirun itself, about to start one
        elif grep -q . "/proc/$child/cmdline" 2>/dev/null; then
            found=other
        elif [[ $found == none ]]; then
            found=ended # and mpirun has not asked for its code
        fi
    done
    [[ $found != none || $(asked) == "$1" ]] || found=ended
    echo "$found"
}
# Ends mpirun when it has to, and how it reaches the other hosts; its own exit code is then that of the ranks.
look_after() {
    local now had='' exe='' before=0 gone=0 code=75 how="ended $seconds s ago" stat pause=0.1 # gone: halves of a second
    trap - HUP INT TERM USR1 USR2 EXIT
    while sleep $pause <&- >&- 2>&-; do # holds nothing of the caller once this has ended
        read -r stat </proc/self/stat
        set -- ${stat##*) }
        if [[ $2 != "$$" ]]; then
            rm -f "$ZEROD_LAUNCHER_FILE"
            kill -KILL "$pid" 2>/dev/null # its ranks see that
            exit
        fi
        # what a script has started that runs mpirun in its own place is none of mpirun's
        now=$(readlink "/proc/$pid/exe")
        [[ $now == "$exe" ]] || exe=$now had='' pause=0.1 before=$(asked)
        now=$(look "$before")
        # ranks that ended before they were seen; beside those of other hosts, whose ssh may have ended too, they are waited for
        [[ $now != other || $had ]] || had=hosts
        [[ $now != ended || $had ]] || had=ranks
        [[ $now != rank ]] || had=ranks
        [[ ! $had ]] || pause=0.5
        if [[ $now == rank || $had != ranks ]]; then
            gone=0
        elif ((++gone >= 2)) && [[ -s $ZEROD_LAUNCHER_FILE ]]; then
            read -r code <"$ZEROD_LAUNCHER_FILE"
            how='ended by themselves'
            break
        elif ((gone >= 2 * seconds)); then
            break
        fi
    done
    trap '' TERM
    echo "mpirun.sh: the ranks of this host $how, and mpirun, which waits for another host or stands still, is ended" >&2
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
