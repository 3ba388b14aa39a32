#!/bin/sh
# What becomes of a job whose collectives fail, on the stand-ins; TAP.
# Arguments: mpirun, the program of test_comm_gpu_mpi.
mpirun=$1
program=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
number=0

# check NAME CODE PATTERN..: the last run ended with CODE, and each pattern is
# somewhere in what it said
check() {
    name=$1
    want=$2
    shift 2
    number=$((number + 1))
    holds=ok
    [ "$code" -eq "$want" ] || { holds="not ok"; echo "# exit code $code, not $want"; }
    for pattern; do
        grep -q -- "$pattern" "$out/said" || { holds="not ok"; echo "# nothing like: $pattern"; }
    done
    [ "$holds" = ok ] || sed 's/^/# /' "$out/said"
    echo "$holds $number - $name"
}

# run FAILURES ARGUMENTS..: three ranks; 60 s are more than any deadline here
run() {
    failures=$1
    shift
    NCCL_STANDIN_FAIL=$failures timeout 60 "$mpirun" --oversubscribe -np 3 \
        "$program" "$@" >"$out/said" 2>&1 </dev/null
    code=$?
}

echo 1..6
run "" work 1
check "a rank that does not come is named" 75 'E1235' 'all_gather #11 (fp32, 120000 bytes) is not done' \
    'rank 1 (.*) has not entered #11; its last is #10' '#10 all_gather fp32 120000 bytes: done'
run hang:5@2 work
check "an operation that hangs is named" 75 'E1235' 'all_gather #5 ' 'has entered #5'
run async:7@0 work
check "an asynchronous error ends the job" 75 'E1233' 'injected failure' 'its last collectives'
run hang:5@2,abort work
check "an abort that hangs does not hold the end" 75 'E1235' 'ncclCommAbort hangs'
run init@1 work
check "ranks that never join are told in time" 69 'E1234'
ZD_STANDIN_GPUS=1 run "" work
check "two ranks on one GPU are refused, with both named" 69 'ranks 0 (.*) and 1 (.*) share one GPU, GPU-' \
    'Duplicate GPU detected : rank 0 and rank 1'
