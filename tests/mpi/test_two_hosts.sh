#!/usr/bin/env bash
# Two network namespaces as two hosts, 2 + 2 ranks, TCP between them.
source "$(dirname "$0")/lib.sh" "$1" "$2"
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
    check "stage $stage: one host fills the cache that both have" says "data.cache_dir is shared by hosts: host-a fills it, 1 waits"
    check "stage $stage: they are two hosts" says "4 (2 on this host)"
    check "stage $stage: the losses of one rank" near alone shared-$stage
    check "stage $stage: whole checkpoints" all_verify shared-$stage
done
run one 4 --set zero.stage=3
check "stage 3: the bits of 4 ranks on one host" same_run one shared-3

mkdir unshared
two_hosts unshared -n 4 -u "$folder/unshared" "$zerod" --job job.toml --set job.output_dir=unshared
check "an output_dir that the hosts do not share is refused: 73" fails_with 73 E0735
check "naming the host" says host-b
check "before step 1" [ ! -s unshared/metrics.jsonl ]
plan
