#!/usr/bin/env bash
# What a flood of the control socket costs the training, and the owner's status meanwhile.
#   bench/control_flood.sh BUILD_FOLDER [SECONDS [RATE]]      60 s and 2000 new connections a second unless told otherwise
# Two ranks train on core 0; the control thread and all clients are on core 1. The same client floods the job, then an idler (a
# server that only accepts), in turns: step times of both are compared, so that what the client itself costs cancels. The flood: 500 slow
# writers, 500 readers that never read, beside them garbage, oversize and silent connections (control_flood.c).
# The last figures: a status with a core to spare, and while the two ranks fill both cores, without a flood.
set -uo pipefail
build=$(readlink -f "${1:?a build folder}") || exit 64
seconds=${2:-60} rate=${3:-2000}
root=$(dirname "$(readlink -f "$0")")/..
zerod=$build/daemon/zerod tool=$build/bench/control_flood
[[ -x $zerod && -x $tool ]] || { echo "ninja -C ${1} daemon/zerod bench/control_flood" >&2; exit 66; }
[[ $(nproc) -ge 2 ]] || { echo "two cores are needed" >&2; exit 69; }

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=1
folder=$(mktemp -d /tmp/zerod-flood-XXXXXX)
export XDG_RUNTIME_DIR=$folder
started=()
finish() {
    local pid
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null; done
    wait 2>/dev/null
    rm -rf "$folder"
}
trap finish EXIT
cd "$folder" || exit 70
ln -s "$root/tests" tests
socket=$folder/zerod/fixture-llama_odd.sock

start_run() { # CORES OF THE RANKS; $run is mpirun's pid, $rank0 the pid that answers
    rm -rf out
    taskset -c "$1" mpirun --bind-to none -np 2 "$zerod" --job tests/fixtures/llama_odd/job.toml --set job.output_dir=out \
        --set data.cache_dir=cache --set train.max_steps=10000000 --set log.logging_steps=1000 --set checkpoint.save_strategy=no \
        --set report.tensorboard=false --no-progress >run.out 2>run.err &
    run=$!
    started+=("$run")
    local tries=0
    until [[ $(steps) -gt 20 ]]; do
        sleep 0.1
        tries=$((tries + 1))
        if [[ $tries -gt 600 || ! -d /proc/$run ]]; then grep -A 3 ^error run.err >&2; exit 1; fi
    done
    rank0=$(curl -s --unix-socket "$socket" http://z/v1/status | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')
    threads=$(grep -l '^zerod-control$' /proc/"$rank0"/task/*/comm | cut -d/ -f5)
    [[ -n $threads ]] || { echo "there is no thread zerod-control" >&2; exit 1; }
}
stop_run() {
    curl -s --unix-socket "$socket" -d '{"checkpoint": false}' http://z/v1/stop >/dev/null
    wait "$run"
    run_code=$?
}
steps() { wc -l 2>/dev/null <out/metrics.jsonl || echo 0; }
descriptors() { ls /proc/"$rank0"/fd | wc -l; }
resident() { awk '/^VmRSS/ { print $2 }' /proc/"$rank0"/status; }
# Median of step_seconds of rows FROM .. TO, in ms.
median() {
    sed -n "$1,$2s/.*\"step_seconds\":\([^,}]*\).*/\1/p" out/metrics.jsonl | sort -g |
        awk '{ v[NR] = $1 } END { if (NR) printf "%.4f\n", 1000 * v[int((NR + 1) / 2)] }'
}

# --- flooded, and the idler flooded, in turns ---
start_run 0
for thread in $threads; do taskset -cp 1 "$thread" >/dev/null || exit 1; done # those that write its files have its name
taskset -c 1 "$tool" idler "$folder/idler.sock" &
started+=("$!")
until [[ -S $folder/idler.sock ]]; do sleep 0.05; done
taskset -c 1 "$tool" probe "$socket" 1 >/dev/null # buffers that are taken once
fd_before=$(descriptors) rss_before=$(resident)
turns=$((seconds >= 20 ? 6 : 2))
part=$((seconds / turns))
# A flood of the job with the owner asking; of the idler, with the owner asking all the same.
for ((i = 0; i < turns; i++)); do
    for target in "$socket" "$folder/idler.sock"; do
        kind=$([[ $target == "$socket" ]] && echo job || echo idler)
        taskset -c 1 "$tool" flood "$target" "$part" "$rate" >flood.$kind.$i &
        flood=$!
        sleep 0.3
        from=$(steps)
        taskset -c 1 "$tool" probe "$socket" "$((part - 1))" >probe.$kind.$i
        to=$(steps)
        wait "$flood"
        median "$((from + 2))" "$to" >median.$kind.$i
    done
    echo "turn $i  job:   $(cat median.job.$i) ms a step; $(cat flood.job.$i); status: $(cat probe.job.$i)"
    echo "turn $i  idler: $(cat median.idler.$i) ms a step; $(cat flood.idler.$i); status: $(cat probe.idler.$i)"
done
sleep 1
ratios=$(paste -d ' ' <(cat median.job.*) <(cat median.idler.*) | awk '{ print $1 / $2 }' | sort -g |
    awk '{ v[NR] = $1 } END { printf "%.4f (%.4f to %.4f)", v[int((NR + 1) / 2)], v[1], v[NR] }')
echo "step time, job flooded / idler flooded: $ratios"
echo "descriptors $fd_before -> $(descriptors), resident $rss_before -> $(resident) kB"
echo "a core to spare: $("$tool" probe "$socket" 5)"
stop_run
echo "the run ended with $run_code"

# --- both cores full ---
start_run 0,1
echo "two ranks on two cores: $("$tool" probe "$socket" 5)"
stop_run
echo "the run ended with $run_code"
