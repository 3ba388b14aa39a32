#!/usr/bin/env bash
# A GPU that fails under one of two ranks, on the stand-in: that rank says why, once, and the job ends with its code, whoever
# waits for it.
#   test_gpu_failures.sh ZEROD SOURCE_ROOT
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/gpu_lib.sh"
settings+=(--set train.global_batch_size=2 --set train.per_device_train_batch_size=1 --set checkpoint.save_strategy=no
    --set checkpoint.export=none --set eval.eval_strategy=no --set control.socket=none --set train.max_steps=1000)
limit=100

# one_of_two NAME FAILURE RANK ARGUMENT...: only that rank's GPU fails.
one_of_two() {
    name=$1
    local failure=$2 rank=$3
    shift 3
    local launch=(-np 1 zerod) failing=(-np 1 -x ZD_STANDIN_FAIL="$failure" zerod)
    local arguments=(--job job.toml --set job.output_dir="$name" "${settings[@]}" "$@")
    local first=("${launch[@]}" "${arguments[@]}") second=("${failing[@]}" "${arguments[@]}")
    [[ $rank -eq 1 ]] || { local other=("${first[@]}"); first=("${second[@]}"); second=("${other[@]}"); }
    code=0
    timeout -k 5 "$limit" mpirun "${first[@]}" : "${second[@]}" >"$name.out" 2>"$name.err" || code=$?
}

for failure in sticky:100 launch:100; do
    for rank in 0 1; do
        one_of_two "$failure-$rank" $failure $rank --set comm.backend=nccl
        check "$failure on rank $rank of two over NCCL: 69, told once" fails_with 69 E1206
        check "  which names the rank and its host" says "--> rank $rank (.*)"
    done
    one_of_two "$failure-timeout" $failure 1 --set comm.backend=nccl --set comm.timeout=30s
    check "$failure: the peer's comm.timeout does not come first" fails_with 69 E1206
    one_of_two "$failure-mpi" $failure 1 --set comm.backend=mpi
    check "$failure on one of two over MPI" fails_with 69 E1206
done
tests_end
