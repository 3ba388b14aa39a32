#!/usr/bin/env bash
# Two network namespaces as two hosts, 2 + 2 ranks, TCP between them.
#   test_two_hosts.sh ZEROD SOURCE_ROOT CALLS
source "$(dirname "$0")/lib.sh" "$1" "$2"
calls=$3
two_hosts() {
    name=$1 code=0
    shift
    timeout -k 5 200 "$source_root/deploy/netns/two-hosts.sh" "$@" >"$name.out" 2>"$name.err" || code=$?
}
two_hosts try -n 2 true
[[ $code -ne 77 ]] || skip_all "$(tail -n 1 try.err)"

run alone 0 --set zero.stage=0
check "one rank" code_is 0
for stage in 1 3; do
    two_hosts shared-$stage -n 4 "$zerod" --job job.toml --set job.output_dir=shared-$stage --set zero.stage=$stage
    check "2 + 2 ranks on two hosts, stage $stage" code_is 0
    check "stage $stage: they are two hosts" says "4 (2 on this host)"
    check "stage $stage: the losses of one rank" near alone shared-$stage
    check "stage $stage: whole checkpoints" all_verify shared-$stage
done
run one 4 --set zero.stage=3
check "stage 3: the bits of 4 ranks on one host" same_run one shared-3

# A cache that is empty: the first rank of the other host may not write there, and would come first.
cp tests/reference/text.txt text.txt
sed '/^\[\[data.train\]\]/,/^$/d' job.toml >text.toml
printf '[[data.train]]\npath = "text.txt"\nformat = "text"\n' >>text.toml
cat >by_rank.sh <<END
#!/bin/sh
export ZEROD_TEST_HIT=$folder/hits
case \$OMPI_COMM_WORLD_RANK in
0) export ZEROD_TEST_DELAY=fsync:/fresh/:1000:1 ;;
2) export ZEROD_TEST_REFUSE=write:/fresh/:13 ZEROD_TEST_RANK=2 ;;
esac
LD_PRELOAD=$calls exec "\$@"
END
chmod +x by_rank.sh
two_hosts fresh -n 4 "$folder/by_rank.sh" "$zerod" --job text.toml --set job.output_dir=fresh-run --set data.cache_dir=fresh \
    --set train.max_steps=2
check "one host tokenizes for both" code_is 0
check "  late, and the other waits for it and writes nothing there" [ "$(grep -c '^fsync.*/fresh/' hits)" -eq 1 ]

mkdir unshared
two_hosts unshared -n 4 -u "$folder/unshared" "$zerod" --job job.toml --set job.output_dir=unshared
check "an output_dir that the hosts do not share is refused: 73" fails_with 73 E0735
check "naming the host" says host-b
check "before step 1" [ ! -s unshared/metrics.jsonl ]

# hang NAME: 2 + 2 ranks that make steps; $pid is that of two-hosts.sh, after which its namespaces are called, $ranks are theirs.
printf '#!/bin/sh\necho $$ >"$1-$OMPI_COMM_WORLD_RANK.pid"\nshift\nexec "$@"\n' >with_pid.sh
chmod +x with_pid.sh
hang() {
    name=$1
    together begin
    ranks=($(cat "$name"-[0-3].pid))
}
begin() { # with comm.timeout, $limit
    limit=$((3 * tries * tries))
    "$source_root/deploy/netns/two-hosts.sh" -n 4 "$folder/with_pid.sh" "$folder/$name" "$zerod" --job job.toml \
        --set job.output_dir="$name" --set train.max_steps=1000000 --set checkpoint.save_strategy=no --set eval.eval_strategy=no \
        --set control.socket=none --set log.progress=none --set comm.timeout=${limit}s >"$name.out" 2>"$name.err" &
    pid=$!
    wait_rows "$name" 5
}
gone() {
    local each tries=0
    for each in "${ranks[@]}"; do
        while lives "$each"; do
            [[ $((tries++)) -lt 300 ]] || { echo "$each is left"; return 1; }
            sleep 0.1
        done
    done
}
# Rank 1 is held up where it writes the event: those of the other host, who have told, do not end before it has.
ZEROD_TEST_RANK=1 ZEROD_TEST_DELAY=write:events.jsonl:2500:1 LD_PRELOAD=$calls hang stopped
kill -STOP "${ranks[0]}"
finish_started
check "a rank that is stopped: 75" code_is 75
check "  named by one rank of each host" [ "$(grep -c '^error.E0504.: rank 0 on host-a hangs at step' stopped.err)" -eq 2 ]
check "  an event" grep -q '"event":"hang","step":[0-9]*,"rank":0,"host":"host-a"' stopped/events.jsonl
check "  nobody is left" gone
# All of a host ends at once, its wire first: nothing tells the others.
hang dead
lost=($(ip netns pids "zerod-b-$pid"))
began=$SECONDS
ip -n "zerod-a-$pid" link delete zd0
for each in "${lost[@]}"; do # what stands for ssh is of the host that is left, and hears nothing
    if [[ " ${lost[*]} " == *" $(sed 's/.*) . //; s/ .*//' "/proc/$each/stat") "* ]]; then end=KILL; else end=STOP; fi
    kill -$end "$each"
done
check "a host that is gone: the ranks of the other end" gone
check "  it is named" says "rank [23] on host-b hangs at step"
check "  an event" grep -q '"event":"hang","step":[0-9]*,"rank":[23],"host":"host-b"' dead/events.jsonl
finish_started
check "  mpirun ends too: 75" code_is 75
check "  soon" [ $((SECONDS - began)) -le $((limit + 17)) ]
note "after $((SECONDS - began)) s"
hang cut
ip -n "zerod-a-$pid" link set zd0 down
check "a link that is down: the ranks of both hosts end" gone
check "  the other host is named" says "rank [23] on host-b hangs at step"
began=$SECONDS
finish_started
check "  and so does mpirun: 75" code_is 75
check "  soon" [ $((SECONDS - began)) -le 17 ]
check "  which is said" says "mpirun.sh: the ranks of this host ended by themselves, and mpirun, which waits for another host"
tests_end
