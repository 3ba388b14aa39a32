#!/usr/bin/env bash
# Eight ranks with a GPU each, on the stand-ins: stages 0 to 3 over NCCL have the bits of the same ranks over MPI, in one level
# and in two levels of 2 x 4; a GPU alone computes with everything offloaded what it computes without.
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
for stage in 0 3; do
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
plan
