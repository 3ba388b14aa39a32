#!/usr/bin/env bash
# What becomes of a job whose collectives fail, on the stand-ins; TAP.
# Arguments: mpirun, the program of test_comm_gpu_mpi.
mpirun=$1
program=$2
source "$(dirname "$0")/../support/tap.sh"
scratch_folder
out=$work

# What the last run should have said, or ended with, and has not: missing CODE PATTERN..
missing() {
    [[ $code -eq $1 ]] || echo "# exit code $code, not $1"
    shift
    for pattern; do grep -q -- "$pattern" "$out/said" || echo "# nothing like: $pattern"; done
}

# check NAME CODE PATTERN..: the last run ended with CODE, and each pattern is
# somewhere in what it said. On a machine too busy for two collectives in two
# seconds another one is late: it is tried again with more of them.
check() {
    name=$1
    shift
    for seconds in 8 30 ''; do
        wrong=$(missing "$@")
        [[ -n $wrong && -n $seconds ]] || break
        again "$name, now with $seconds s:" "${wrong//$'\n'/;}"
        attempt "$seconds"
    done
    if [[ -n $wrong ]]; then
        echo "$wrong"
        sed 's/^/# /' "$out/said"
    fi
    [[ -z $wrong ]]; tell $? "$name"
}

# attempt SECONDS: with that comm.timeout; two minutes are more than any
# deadline here. When ranks end in the same moment Open MPI 4's mpirun may
# itself crash in its last act: that is tried again.
attempt() {
    for _ in 1 2 3; do
        env "${settings[@]}" TEST_COMM_TIMEOUT="$1" timeout 120 "$mpirun" --oversubscribe "${arguments[@]}" \
            >"$out/said" 2>&1 </dev/null
        code=$?
        [[ $code -eq 139 ]] && grep -q 'server_finalize' "$out/said" || break
        again "mpirun crashed in its last act: ${arguments[*]##*/}"
    done
}

# launch ARGUMENTS..: of mpirun
launch() {
    arguments=("$@")
    settings=(NCCL_STANDIN_FAIL="${NCCL_STANDIN_FAIL:-}" ZD_STANDIN_GPUS="${ZD_STANDIN_GPUS:-}")
    attempt 2
}

# run FAILURES ARGUMENTS..: three ranks
run() {
    local injected=$1
    shift
    NCCL_STANDIN_FAIL=$injected launch -np 3 "$program" "$@"
}

# nodes ARGUMENTS..: two hosts of two ranks
nodes() {
    launch -x ZEROD_TEST_RANKS_PER_NODE=2 -np 4 "$program" "$@"
}

# other SETTING: of three ranks the last has another environment
other() {
    launch -np 2 "$program" work : -np 1 -x "$1" "$program" work
}

run "" work late 1
check "a rank that does not come is named" 75 'E0504' 'rank 1 on .* hangs at step 0: others wait for it in all_gather #11 (fp32, 120000 bytes)'
# the whole second host: ranks that wait there would be as likely to tell, and the job ends with the first
nodes work late 2-3
check "a rank that does not come is named on other hosts" 75 'E0504' '--> rank [01] ' 'rank [23] on .*/1 hangs'
launch -x ZEROD_TEST_RANKS_PER_NODE=1 -np 2 "$program" work stopped 1
check "a host that does not answer is named" 75 'E0504' 'rank 1 on .*/1 hangs'
run "" work short 1
check "another count on one rank is an error" 75 'E1233' \
    'rank 0 is in AllGather #11 of 10000' 'rank 1 in AllGather #11 of 5000'
run "" work other 2
check "another collective on one rank is an error" 75 'E1233' 'rank 0 is in AllGather #11' 'rank 2 in ReduceScatter #11'
run unequal work short 1
check "ranks that hang in different counts are a hang" 75 'E0504' 'hangs at step 0: all_gather #11'
run hang:5@2 work
check "an operation that hangs is named" 75 'E0504' 'all_gather #5 .*, which every rank has entered, is not done'
[[ $(grep -c '^error' "$out/said") -eq 1 ]]; tell $? "by one rank"
run stick:5@2 ahead
check "a rank whose GPU stands still is named where all have entered" 75 'E0504' 'rank 2 on .*, which every rank has entered'
NCCL_STANDIN_FAIL='' launch -np 4 "$program" groups late 3
check "a rank that does not come is named, in whichever groups others wait" 75 'E0504' 'rank 3 on .* hangs at step 0: others wait for it in'
NCCL_STANDIN_FAIL=hang:14@2 launch -np 4 "$program" groups
check "an operation of a group that hangs is named" 75 'E0504' 'rank [23] on .* hangs at step 0: all_gather #40 .*, which every rank has entered'
NCCL_STANDIN_FAIL=async:14@1 launch -np 4 "$program" groups
check "an asynchronous error in a group ends the job" 75 'E1233' 'injected failure'
run async:7@0 work
check "an asynchronous error ends the job" 75 'E1233' 'injected failure'
run hang:5@2,abort work
check "an abort that hangs does not hold the end" 75 'E0504' 'ncclCommAbort hangs'
run init@1 work
check "ranks that never join are told in time" 69 'E1234'
ZD_STANDIN_GPUS=1 run "" work
check "two ranks on one GPU are refused, with both named" 69 'ranks 0 (.*) and 1 (.*) share one GPU, GPU-' \
    'Duplicate GPU detected : rank 0 and rank 1'
other NCCL_STANDIN_VERSION=22705
check "different versions are refused, with ranks and hosts" 69 'E1236' 'nccl 2.27.5 on .*, nccl 2.28.9 on rank 0'
other ZD_STANDIN_FAIL=malloc:1
check "device memory that one rank does not get ends all" 69 'E1204.*GPU 2' '--> rank 2'
other ZD_STANDIN_MEMORY=4M
check "so does a GPU that is too small" 69 'E1204.*GPU 2'
tests_end
