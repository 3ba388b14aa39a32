#!/usr/bin/env bash
# Eight ranks with a GPU each, on the stand-ins: stages 0 to 3 over NCCL have the bits of the same ranks over MPI, in one level
# and in two levels of 2 x 4; a GPU alone computes with everything offloaded what it computes without; what kill -9 has ended
# goes on with the bits of a run that nobody ended.
#   test_gpu.sh ZEROD SOURCE_ROOT
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/gpu_lib.sh"
settings+=(--set train.global_batch_size=8)

run mpi 8 "${settings[@]}" --set comm.backend=mpi --set zero.stage=0
check "eight ranks over MPI" code_is 0
for stage in 0 1 2 3; do
    run nccl$stage 8 "${settings[@]}" --set comm.backend=nccl --set zero.stage=$stage
    check "stage $stage over NCCL: the bits of MPI" same nccl$stage mpi
done

export ZEROD_TEST_RANKS_PER_NODE=4
run mpi24 8 "${settings[@]}" --set comm.backend=mpi --set comm.hierarchical=true --set zero.stage=1
check "two nodes of four ranks over MPI, in two levels" code_is 0
for stage in 0 1 2 3; do
    run nccl24-$stage 8 "${settings[@]}" --set comm.backend=nccl --set comm.hierarchical=true --set zero.stage=$stage
    check "stage $stage over NCCL in two levels: the bits of MPI" same nccl24-$stage mpi24
done
unset ZEROD_TEST_RANKS_PER_NODE

alone=("${settings[@]}" --set optim.name=adamw_8bit --set train.gradient_checkpointing=full --set train.dtype=fp16)
run plain 0 "${alone[@]}"
check "one GPU in fp16" code_is 0
run offloaded 0 "${alone[@]}" --set offload.optimizer=cpu --set offload.params=cpu --set offload.activations=cpu
check "optimizer, parameters and activations offloaded: the same bits" same offloaded plain
run disk 0 "${alone[@]}" --set offload.optimizer=nvme --set offload.nvme_path="$folder"
check "states on disk: the same bits" same disk plain

# At any moment, either rank; with states on the GPU, and with states and parameters in a file.
long=("${settings[@]}" --set comm.backend=nccl --set zero.stage=3 --set train.max_steps=12 --set checkpoint.save_steps=2)
mkdir states
in_file=(--set offload.optimizer=nvme --set offload.params=nvme --set offload.nvme_path=states)
run whole 2 "${long[@]}"
check "two GPUs in stage 3, unbroken" code_is 0
for victim in 1 2; do
    tier=()
    [[ $victim -eq 1 ]] || tier=("${in_file[@]}")
    code=0
    for ((try = 1; try <= 20 && code == 0; try++)); do # whoever looks away for a moment finds it done
        [[ $try -eq 1 ]] || again "kill -9 of rank $((victim - 1)): the run had ended before, with 0"
        rm -rf killed-$victim
        start killed-$victim 2 "${long[@]}" "${tier[@]}"
        wait_rows killed-$victim $((3 * victim + RANDOM % 3))
        wait_commit killed-$victim
        kill -KILL "$(children "$pid" | tr ' ' '\n' | sed -n "${victim}p")" 2>/dev/null
        finish_started
    done
    check "kill -9 of a rank after $(rows killed-$victim) steps ends mpirun, not with 0" [ "$code" -ne 0 ]
    check "  what was committed verifies" all_verify killed-$victim
    run killed-$victim 2 "${long[@]}" "${tier[@]}"
    check "  the next start goes on" says 'resum'
    check "  to the end" code_is 0
    check "  with the unbroken run's bits" same_run whole killed-$victim
    check "  leaving nothing behind" no_leftovers killed-$victim
done
is_empty() { [[ -z $(ls -A "$1") ]] || { ls -A "$1"; return 1; }; }
check "nor in the file's folder" is_empty states
tests_end
