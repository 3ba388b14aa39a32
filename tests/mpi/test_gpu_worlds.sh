#!/usr/bin/env bash
# Ranks with a GPU each, on the stand-ins, in worlds that divide nothing: over NCCL they have the bits of MPI; so they have where
# NCCL adds as its real rings do, with comm.reduce = "ordered"; a run in two levels takes the memory that `zerod plan` says.
#   test_gpu_worlds.sh ZEROD SOURCE_ROOT [long]
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/gpu_lib.sh"
is_long=${3:-}

# over BACKEND NAME RANKS STAGE ARGUMENT...
over() {
    local backend=$1 run=$2 ranks=$3 stage=$4
    shift 4
    run "$run" "$ranks" "${settings[@]}" --set comm.backend="$backend" --set zero.stage="$stage" \
        --set train.global_batch_size="$((ranks * ${micros:-1}))" "$@"
}

# stages RANKS DTYPE STAGE...: over NCCL against MPI
stages() {
    local ranks=$1 dtype=$2 stage
    shift 2
    over mpi mpi$ranks-$dtype $ranks 0 --set train.dtype=$dtype
    check "$ranks ranks over MPI, $dtype" code_is 0
    for stage; do
        over nccl nccl$ranks-$dtype-$stage $ranks $stage --set train.dtype=$dtype
        check "$ranks ranks over NCCL, $dtype, stage $stage: the bits of MPI" same nccl$ranks-$dtype-$stage mpi$ranks-$dtype
    done
}

# ordered RANKS REFERENCE STAGE ARGUMENT...: NCCL adds in rings
ordered() {
    local ranks=$1 reference=$2 stage=$3
    shift 3
    NCCL_STANDIN_SUMS=ring over nccl ordered$ranks-$stage $ranks $stage --set comm.reduce=ordered "$@"
    check "$ranks ranks, stage $stage, sums in rank order where NCCL has another: the bits of MPI" same ordered$ranks-$stage $reference
}

# span NAME FILE: bytes of the first rank's
span() { sed -n "/\"name\": \"$1\"/,/}/s/.*\"bytes\": \([0-9]*\).*/\1/p" "$2" | head -n 1; }

# planned RUN ARGUMENT...: the run in nodes of two has the plan's bytes
planned() {
    local run=$1
    shift
    zerod plan --job job.toml --world 4 --per-node 2 --format json "${settings[@]}" "$@" >planned.json || return 1
    for name in comm.device zero.params; do
        [[ -n $(span $name planned.json) && $(span $name planned.json) -eq $(span $name "$run/plan.json") ]] ||
            { echo "$name: planned $(span $name planned.json), taken $(span $name "$run/plan.json")"; return 1; }
    done
    grep -A3 collectives planned.json | grep -q 'ranks_per_node": 2'
}

# sends RUN DTYPE: what its plan says, in every step
sends() {
    local planned count
    planned=$(sed -n '/wire_bytes_per_step/,/}/s/.*"reduce_scatter": \([0-9]*\).*/\1/p' "$1/plan.json")
    grep -q "\"reduce_dtype\": \"$2\"" "$1/plan.json" || { echo "the plan does not say $2"; return 1; }
    count=$(grep -c "\"wire_bytes\":{\"reduce_scatter\":$planned," "$1/metrics.jsonl")
    [[ -n $planned && $count -gt 0 && $count -eq $(rows "$1") ]] || { echo "$planned bytes planned, in $count rows"; return 1; }
    bytes=$planned
}
half_of() { sends "$1" fp32 && whole=$bytes && sends "$2" bf16 && [[ $whole -eq $((2 * bytes)) ]]; }

bf16=(--set train.dtype=bf16)
stages 3 fp16 0 1 2 3
over mpi mpi4 4 0 "${bf16[@]}"
NCCL_STANDIN_SUMS=ring over nccl ring4 4 0 "${bf16[@]}"
check "four ranks whose NCCL adds in rings have other bits than MPI" differs ring4 mpi4
wide=("${bf16[@]}" --set comm.reduce_dtype=fp32)
over mpi wide-mpi4 4 0 "${wide[@]}"
check "gradients sent in fp32 are rounded behind their sum: other bits" differs wide-mpi4 mpi4
for stage in 0 2; do
    over nccl wide4-$stage 4 $stage "${wide[@]}"
    check "  the same over NCCL, stage $stage" same wide4-$stage wide-mpi4
    check "  as many bytes as planned, which says fp32" sends wide4-$stage fp32
done
check "  and in the compute type half of them" half_of wide4-0 ring4
ordered 4 mpi4 1 "${bf16[@]}"
ordered 4 mpi4 3 "${bf16[@]}"

export ZEROD_TEST_RANKS_PER_NODE=2
two=(--set train.global_batch_size=4 "${bf16[@]}")
over mpi mpi22 4 2 --set comm.hierarchical=true "${bf16[@]}"
check "two nodes of two ranks over MPI" code_is 0
over nccl nccl22 4 3 "${bf16[@]}"
check "two nodes of two ranks over NCCL are two levels, with the bits of MPI" same nccl22 mpi22
check "  which is said" says 'in two levels'
check "  and planned" planned nccl22 "${two[@]}" --set comm.backend=nccl --set zero.stage=3
ordered 4 mpi22 2 "${bf16[@]}"
check "  and planned" planned ordered4-2 "${two[@]}" --set comm.backend=nccl --set zero.stage=2 --set comm.reduce=ordered
unset ZEROD_TEST_RANKS_PER_NODE

if [[ $is_long == long ]]; then
    stages 5 bf16 0 1 2 3
    stages 4 fp32 0 1 2 3
    two_micros=(--set train.gradient_accumulation_steps=2)
    micros=2
    for stage in 0 2 3; do
        over mpi micro-mpi$stage 3 $stage "${two_micros[@]}"
        over nccl micro-nccl$stage 3 $stage "${two_micros[@]}"
        check "two micro-batches, stage $stage: the bits of MPI" same micro-nccl$stage micro-mpi$stage
        NCCL_STANDIN_SUMS=ring over nccl micro-ordered$stage 3 $stage "${two_micros[@]}" --set comm.reduce=ordered
        check "  and with sums in rank order where NCCL has another" same micro-ordered$stage micro-mpi$stage
    done
    micros=1
    rm -rf ordered4-2
    for stage in 0 2; do
        ordered 4 mpi4 $stage "${bf16[@]}"
    done
fi
tests_end
