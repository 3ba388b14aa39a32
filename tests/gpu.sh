#!/usr/bin/env bash
# What a GPU must show, from a folder that deploy/bundle.sh made (or a build folder of this machine).
#   tests/gpu.sh FOLDER [PART]...      kernels parity ranks offload adapters sanitizer; all of them without a word
# A line for each check goes to FOLDER/gpu-tests.txt, which is appended to, and to the terminal. No command that it runs takes
# longer than eight minutes; bench/gpu_all.sh bounds a part. ZEROD_GPU_STEPS=2 makes runs of zerod shorter, ZEROD_GPU_RESULTS
# names another file. Ends with 0 when nothing failed. Without a GPU that it can use it says why, writes no result and ends
# with 69; 66: no such folder, or its payload is cut; 77: what was unpacked is not this user's alone.
set -uo pipefail
here=$(dirname "$(dirname "$(readlink -f "$0")")")
# shellcheck source=deploy/gpu-folder.sh
source "$here/deploy/gpu-folder.sh"
tell_usage "$@"
gpu_folder "$1"
shift
all=(kernels parity ranks offload adapters sanitizer)
for part in "$@"; do
    [[ " ${all[*]} " == *" $part "* ]] || refuse 64 "no part $part; there are: ${all[*]}"
done
parts=("$@")
[[ ${#parts[@]} -gt 0 ]] || parts=("${all[@]}")
results=${ZEROD_GPU_RESULTS:-$folder/gpu-tests.txt}
limit=470

if [[ -e $folder/payload.tar.xz ]]; then
    # shellcheck source=deploy/bundle-env.sh
    source "$here/deploy/bundle-env.sh" "$folder" || exit
    source_root=$BUNDLE/source programs=$BUNDLE/programs list=$BUNDLE/tests.list
    commit=$(cat "$BUNDLE/commit")
else
    source_root=$here programs='' list=$(mktemp)
    tests=$(meson introspect --tests "$folder") || refuse 66 "$folder: meson does not know it"
    python3 -I -c '
import json, sys
for test in json.load(sys.stdin):
    if any(suite.split(":")[-1] == "cuda" for suite in test["suite"]):
        print("\t".join([test["name"], *test["cmd"]]))' <<<"$tests" >"$list"
    PATH=$folder/daemon:$folder/tests/comm:$PATH
    # a build with the stand-ins of tests/cuda, to try this script: the CPU takes its time
    if [[ -d $folder/tests/cuda/cublaslt ]]; then
        limit=3600
        export LD_LIBRARY_PATH=$folder/tests/cuda/cublaslt:$folder/tests/cuda/nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    fi
    commit=$(git -C "$here" rev-parse --short HEAD)
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
fi
work=$(mktemp -d)
# shellcheck source=tests/support/bounded.sh
source "$here/tests/support/bounded.sh"
trap 'bounded_end; rm -rf "$work"' EXIT
export XDG_RUNTIME_DIR=$work LC_ALL=C
ln -s "$source_root/tests" "$work/tests"
cd "$work" || exit 70
failed=0
say() { printf '%s\n' "$*" | tee -a "$results"; }
# verdict PART WHAT CODE LOG: a line; of a failure also the end of what was said.
verdict() {
    local word=ok
    if [[ $3 -eq 124 || $3 -eq 137 ]]; then word="FAILED (longer than $limit s)"; elif [[ $3 -ne 0 ]]; then word="FAILED ($3)"; fi
    say "$1 | $2 | $word"
    if [[ $word != ok ]]; then
        failed=1
        tail -n 25 "$4" | sed 's/^/    /' | tee -a "$results"
    fi
}
# attempt PART WHAT COMMAND...
attempt() {
    local part=$1 what=$2
    shift 2
    bounded "$limit" "$@" >"$work/log" 2>&1
    verdict "$part" "$what" $? "$work/log"
}
report() { # the same, but a failure is only told
    local part=$1 what=$2 code
    shift 2
    bounded "$limit" "$@" >"$work/log" 2>&1
    code=$?
    say "$part | $what | reported: $([[ $code -eq 0 ]] && echo works || echo "does not work ($code): $(grep -m 1 -E 'error|NCCL' "$work/log")")"
}

# --- programs of the suite cuda
# run_tests PART PREFIX...: those whose name begins with one of the prefixes.
run_tests() {
    local part=$1 name program arguments prefix matches=0
    shift
    while IFS=$'\t' read -r name program arguments; do
        for prefix in "$@"; do
            [[ $name == "$prefix"* ]] || continue
            matches=$((matches + 1))
            if [[ $name == train_gpu_parity_all && -d $folder/tests/cuda/cublaslt ]]; then
                say "$part | $name | skipped: on stand-ins it takes a CPU ten minutes, and is a test of its own"
                break
            fi
            # shellcheck disable=SC2086 # arguments are words
            attempt "$part" "$name" "${programs:+$programs/}$program" $arguments
            if grep -q 'no CUDA device' "$work/log"; then
                failed=1
                say "$part | $name | FAILED: the test found no GPU"
            elif grep -qiE '# skip|skipped: [1-9]' "$work/log"; then
                say "$part | $name | reported: something was skipped: $(grep -m 1 -iE '# skip|skipped' "$work/log")"
            fi
            break
        done
    done <"$list"
    if [[ $matches -eq 0 ]]; then
        failed=1
        say "$part | $* | FAILED: $list has no such program"
    fi
}
# What cuDNN knows of this GPU, beside the results: with it plans are made where there is none (attention/cudnn_plans.cpp).
record_properties() {
    local program
    program=$(awk -F'\t' '$1 == "attention plans" { print $2 }' "$list")
    [[ -z $program ]] || report kernels "cuDNN's properties of this GPU, gpu-cudnn.json" \
        "${programs:+$programs/}$program" record "$(dirname "$results")/gpu-cudnn.json"
}
part_kernels() {
    run_tests kernels base kernels attention optim zero
    record_properties
}
part_parity() { run_tests parity train_gpu_parity train_gpu_worlds train_gpu_resume train_gpu_adapters; }

# --- runs of zerod
# options_of NAME: of such a run, in the array `options`.
options_of() {
    options=(--job "$source_root/tests/fixtures/$fixture/job.toml" --set job.output_dir="$work/$1"
        --set data.cache_dir="$work/cache" --set device.backend=cuda --set model.path="$source_root/tests/fixtures/$fixture/model"
        --set "data.train=[{path = \"$source_root/tests/fixtures/$fixture/data.bin\", format = \"nanogpt\"}]"
        ${ZEROD_GPU_STEPS:+--set train.max_steps="$ZEROD_GPU_STEPS" --set optim.warmup_steps=0})
}
# train NAME RANKS ARGUMENT...: a run of the fixture's job; its model is NAME/hf.
train() {
    local name=$1 ranks=$2
    shift 2
    local launch=(mpirun --bind-to none -np "$ranks")
    [[ $ranks -gt 0 ]] || launch=()
    options_of "$name"
    bounded "$limit" "${launch[@]}" zerod "${options[@]}" "$@" >"$work/log" 2>&1
}
weights() { sha256sum <"$work/$1/hf/model.safetensors"; }
# equal PART WHAT NAME BASE: the exported weights of two runs have the same bits.
equal() {
    if [[ -s $work/$3/hf/model.safetensors && $(weights "$3") == "$(weights "$4")" ]]; then
        say "$1 | $2 | ok"
    else
        failed=1
        say "$1 | $2 | FAILED: other weights than $4's"
    fi
}
each_stage() { # PART PREFIX RANKS ARGUMENT...
    local part=$1 prefix=$2 ranks=$3 stage
    shift 3
    for stage in 0 1 2 3; do
        train "$prefix-$stage" "$ranks" --set zero.stage=$stage "$@"
        verdict "$part" "$fixture, $ranks ranks, stage $stage${*:+, $*}" $? "$work/log"
        [[ $stage -eq 0 ]] || equal "$part" "$fixture, $ranks ranks, stage $stage: bits of stage 0" "$prefix-$stage" "$prefix-0"
    done
}
# near PART WHAT NAME BASE: the losses of all steps are those of BASE within 1e-5.
near() {
    if python3 -I -c '
import json, sys
ours, base = ([row["loss"] for row in map(json.loads, open(path)) if "loss" in row] for path in sys.argv[1:])
sys.exit(len(ours) != len(base) or not ours or any(abs(a - b) > 1e-5 * b for a, b in zip(ours, base)))' \
        "$work/$3/metrics.jsonl" "$work/$4/metrics.jsonl" 2>"$work/log"; then
        say "$1 | $2 | ok"
    else
        failed=1
        say "$1 | $2 | FAILED: other losses than $4's $(tail -n 1 "$work/log")"
    fi
}
# Every axis of the mesh and the stages against one rank, in fp32: through the host, where ranks may share a GPU, and under NCCL.
each_axis() { # PART
    local ranks sets name comm gpus
    local -x ZD_STANDIN_GPUS=4 # of stand-ins, one for each rank
    gpus=$(zerod doctor --format json 2>/dev/null | python3 -I -c 'import json, sys; print(len(json.load(sys.stdin)["gpus"]))')
    fixture=gpt2
    train axes-one 0
    verdict "$1" "$fixture, one rank" $? "$work/log"
    while read -r ranks sets; do
        for comm in mpi nccl; do
            if [[ $comm == nccl && $gpus -lt $ranks ]]; then
                say "$1 | $fixture, $ranks ranks under NCCL, $sets | skipped: it needs $ranks GPUs, and there are $gpus"
                continue
            fi
            name=axes-$comm-${sets//[^a-z0-9]/-}
            # shellcheck disable=SC2086 # sets are words
            train "$name" "$ranks" --set comm.backend=$comm $(printf -- '--set %s ' $sets) </dev/null
            verdict "$1" "$fixture, $ranks ranks, $comm, $sets" $? "$work/log"
            near "$1" "$fixture, $ranks ranks, $comm, $sets: losses of one rank" "$name" axes-one
        done
    done <<'END'
2 zero.stage=1
2 zero.stage=3
2 parallel.tp_size=2
2 parallel.cp_size=2
2 parallel.cp_size=2 parallel.cp_comm_type=a2a
4 parallel.tp_size=2 parallel.cp_size=2 zero.stage=3
END
}
part_ranks() {
    local number
    for fixture in llama_odd gpt2; do
        each_stage ranks "$fixture-nccl1" 1 --set comm.backend=nccl
        each_stage ranks "$fixture-staged2" 2 --set comm.backend=mpi
        each_stage ranks "$fixture-staged4" 4 --set comm.backend=mpi
    done
    fixture=gemma2 # windows, soft caps
    each_stage ranks "$fixture-staged2" 2 --set comm.backend=mpi
    each_axis ranks
    # several ranks of one GPU under NCCL: only where the library lets itself be told that they are several hosts
    fixture=llama_odd
    cat >"$work/as-host" <<'END'
#!/bin/sh
export CUDA_VISIBLE_DEVICES=0 NCCL_HOSTID="rank$OMPI_COMM_WORLD_RANK" NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=2
exec "$@"
END
    chmod +x "$work/as-host"
    options_of hostid
    report ranks "two ranks of one GPU under NCCL with distinct NCCL_HOSTID" mpirun --bind-to none -np 2 "$work/as-host" \
        zerod "${options[@]}" --set comm.backend=nccl
    for number in 2 4; do
        report ranks "groups of $number ranks of one GPU under NCCL" mpirun --bind-to none -np "$number" "$work/as-host" \
            "${programs:+$programs/}test_comm_gpu_mpi" suite ordered groups
    done
}
# every kind, bit by bit, is in a program; of the command itself some
part_offload() {
    run_tests offload train_gpu_offload
    fixture=llama_odd
    local base=(--set train.dtype=bf16 --set optim.name=adamw_8bit)
    train plain 0 "${base[@]}"
    verdict offload "nothing offloaded" $? "$work/log"
    train moved 0 "${base[@]}" --set offload.optimizer=cpu --set offload.params=cpu --set zero.stage=3
    verdict offload "states and parameters on the host" $? "$work/log"
    equal offload "states and parameters on the host: bits of the run without offload" moved plain
    train paged 0 --set optim.name=paged_adamw_8bit
    verdict offload "paged 8-bit states" $? "$work/log"
    train unpaged 0 --set optim.name=adamw_8bit
    equal offload "paged 8-bit states: bits of states that are not" paged unpaged
}

# LoRA, DoRA and QLoRA: the bits of one rank with all of the base, cut over ranks and on the host
part_adapters() {
    local kind base
    fixture=llama_odd
    for kind in lora dora qlora; do
        base=(--set train.dtype=bf16 --set lora.enabled=true --set lora.r=4 --set checkpoint.export=hf)
        [[ $kind != dora ]] || base+=(--set lora.use_dora=true)
        [[ $kind != qlora ]] || base+=(--set lora.quantize_base=nf4)
        train "$kind" 0 "${base[@]}"
        verdict adapters "$kind" $? "$work/log"
        train "$kind-moved" 0 "${base[@]}" --set zero.stage=3 --set offload.params=cpu --set offload.optimizer=cpu
        verdict adapters "$kind, stage 3, base and states on the host" $? "$work/log"
        equal adapters "$kind, stage 3, base and states on the host: bits of the run without" "$kind-moved" "$kind"
        train "$kind-two" 2 "${base[@]}" --set zero.stage=0
        verdict adapters "$kind, 2 ranks" $? "$work/log"
        train "$kind-cut" 2 "${base[@]}" --set zero.stage=3
        verdict adapters "$kind, 2 ranks, stage 3" $? "$work/log"
        equal adapters "$kind, 2 ranks, stage 3: bits of stage 0" "$kind-cut" "$kind-two"
    done
}

part_sanitizer() {
    local tool name program arguments
    if [[ -d $folder/tests/cuda/cublaslt ]]; then
        say "sanitizer | compute-sanitizer | skipped: stand-ins have no GPU's code"
        return
    fi
    if ! command -v compute-sanitizer >/dev/null; then
        say "sanitizer | compute-sanitizer | skipped: not on this machine"
        return
    fi
    while IFS=$'\t' read -r name program arguments; do
        [[ $name == kernels* || $name == optim* ]] || continue
        for tool in memcheck racecheck; do
            # shellcheck disable=SC2086 # arguments are words
            attempt sanitizer "$name under $tool" compute-sanitizer --tool "$tool" --error-exitcode 9 --target-processes all \
                "${programs:+$programs/}$program" $arguments
            if grep -q 'Device not supported' "$work/log"; then
                say "sanitizer | $name under $tool | reported: this machine's runtime does not let it look"
                return
            fi
        done
    done <"$list"
}

fixture=llama_odd train probe 0 --set train.max_steps=1
code=$?
if [[ $code -ne 0 ]] && grep -qE "$no_gpu" "$work/log"; then
    tail -n 12 "$work/log" >&2
    refuse 69 "zerod finds no GPU here that it can use; nothing was run or written"
fi
say "== zerod $commit, $(date -u +%FT%TZ), $(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | sed -n 1p)"
verdict gpu "a first step" $code "$work/log"
[[ $code -eq 0 ]] || exit 1
for part in "${parts[@]}"; do
    begin=$SECONDS
    "part_$part"
    say "$part | all of it | $((SECONDS - begin)) s"
done
exit $failed
