#!/usr/bin/env bash
# Two network namespaces as two hosts: half of the ranks in each, TCP between them. What it runs sees two host names, two
# loopback devices and one wire, as on a cluster, and the same files unless told otherwise.
#   deploy/netns/two-hosts.sh [-n RANKS] [-u FOLDER]... COMMAND [ARGUMENT]...
#     -n RANKS    in all, half of them on each host (4)
#     -u FOLDER   is not shared: the second host has an empty one of its own there
# Example:  deploy/netns/two-hosts.sh build/daemon/zerod --job job.toml
# Needs root and iproute2; ends with 77 and one line when this machine does not permit namespaces.
set -euo pipefail
launcher=$(readlink -f "$(dirname "$0")/../mpirun.sh")
ranks=4
private=()
while getopts n:u: option; do
    case $option in
        n) ranks=$OPTARG ;;
        u) private+=("$(readlink -f "$OPTARG")") ;;
        *) sed -n '4,6s/^# //p' "$0" >&2; exit 64 ;;
    esac
done
shift $((OPTIND - 1))
if [[ $# -eq 0 || $ranks -lt 2 || $((ranks % 2)) -ne 0 ]]; then sed -n '4,6s/^# //p' "$0" >&2; exit 64; fi

a=zerod-a-$$ b=zerod-b-$$ wire=zd0
work=$(mktemp -d)
undo() {
    kill -KILL $(ip netns pids "$a" 2>/dev/null; ip netns pids "$b" 2>/dev/null) 2>/dev/null || true # mpirun's daemon, if the link was cut
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$work"
}
trap undo EXIT
skip() { echo "two-hosts: skipped: $*" >&2; exit 77; }
command -v ip >/dev/null || skip "there is no ip command (Debian package iproute2)"
[[ $(id -u) -eq 0 ]] || skip "network namespaces need root"
ip netns add "$a" 2>"$work/why" && ip netns add "$b" 2>"$work/why" || skip "$(head -n 1 "$work/why")"
ip netns exec "$a" unshare -u true 2>"$work/why" || skip "$(head -n 1 "$work/why")"
ip link add "$wire" netns "$a" type veth peer name "$wire" netns "$b" 2>"$work/why" || skip "$(head -n 1 "$work/why")"
ip -n "$a" addr add 10.213.0.1/24 dev "$wire" && ip -n "$b" addr add 10.213.0.2/24 dev "$wire"
for host in "$a" "$b"; do
    ip -n "$host" link set lo up && ip -n "$host" link set "$wire" up
done

# How mpirun reaches the second host, in place of ssh: agent ADDRESS COMMAND...
cat >"$work/agent" <<END
#!/bin/sh
shift
exec ip netns exec $b unshare -u -m bash "$work/enter" host-b "\$*"
END
{
    echo 'hostname "$1"'
    for folder in "${private[@]}"; do
        mkdir -p "$folder"
        printf '[ "$1" = host-a ] || mount -t tmpfs none %q\n' "$folder"
    done
    echo 'shift; eval "$*"'
} >"$work/enter"
chmod +x "$work/agent"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# TCP over the wire, and nothing else, between the hosts; for Open MPI 4 (OMPI_) and 5 (PRTE_).
export OMPI_MCA_plm_rsh_agent=$work/agent PRTE_MCA_plm_ssh_agent=$work/agent
export OMPI_MCA_pml=ob1 OMPI_MCA_btl_tcp_if_include=$wire OMPI_MCA_oob_tcp_if_include=$wire PRTE_MCA_prte_if_include=$wire
export OMPI_MCA_mpi_yield_when_idle=1
half=$((ranks / 2))
code=0
ip netns exec "$a" unshare -u bash "$work/enter" host-a "$launcher" --map-by "ppr:$half:node:oversubscribe" --bind-to none -np "$ranks" \
    --host "10.213.0.1:$half,10.213.0.2:$half" "$(printf '%q ' "$@")" || code=$?
exit $code
