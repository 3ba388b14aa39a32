#!/usr/bin/env bash
# pause --release on GPUs, over the socket: the driver has their memory back but for the contexts, somebody else may take it,
# and the run goes on bit for bit. On the stand-in, whose processes see each other's memory (ZD_STANDIN_BOARD).
#   test_gpu_release.sh ZEROD SOURCE_ROOT HOLD
source "$(dirname "$0")/lib.sh" "$1" "$2"
hold=$3
command -v curl >/dev/null || skip_all "no curl"
export ZD_STANDIN_GPUS=2 ZD_STANDIN_CONTEXT=8M ZD_STANDIN_MEMORY=1G ZD_STANDIN_BOARD=$folder/board OMP_NUM_THREADS=1
context=$((8 << 20))
settings=(--set device.backend=cuda --set device.cpu_threads=1 --set train.max_steps=1000000 --set data.cutoff_len=16
    --set train.global_batch_size=2 --set train.per_device_train_batch_size=1 --set log.logging_steps=1
    --set checkpoint.save_strategy=no --set eval.eval_strategy=no)
cat >>job.toml <<'END'
[control]
socket = "./s"
END

ask() {
    local method=()
    [[ $# -eq 1 ]] || method=(-X POST -d "$2")
    curl -sS --max-time 200 --unix-socket ./s "${method[@]}" "http://zerod$1"
}
# gpus KEY: that of every rank's GPU.
gpus() { ask /v1/ranks | grep -o "\"$1\": *[0-9]*" | sed 's/.*: *//'; }
# all CONDITION VALUE...: of each of two values.
all() {
    local op=$1 than=$2
    shift 2
    [[ $# -eq 2 ]] && [ "$1" "$op" "$than" ] && [ "$2" "$op" "$than" ] || { echo "$* are not all $op $than"; return 1; }
}
# Ranks are asked every two seconds.
wait_held() {
    local tries=0
    while ! all -eq "$1" $(gpus held) >/dev/null && [[ $tries -lt 300 ]]; do
        sleep 0.1
        tries=$((tries + 1))
    done
}
# The losses and norms of steps that a run has, against one that never paused.
like_unpaused() {
    run "$1-plain" 2 "${settings[@]}" --set run.stop_after="$(rows "$1")"
    diff <(column "$1" loss) <(column "$1-plain" loss) && diff <(column "$1" grad_norm) <(column "$1-plain" grad_norm)
}
# Somebody else takes so many MiB of GPU 0, until `let_go`.
take() {
    mkfifo in out
    "$hold" "$1" <in >out &
    holder=$!
    exec 8>in
    read -r answer <out
    [[ $answer == cudaSuccess ]] || { echo "$answer"; return 1; }
}
let_go() { exec 8>&-; wait "$holder"; rm -f in out; }

for to in host disk; do
    start $to 2 "${settings[@]}" --set control.release_to=$to
    wait_rows $to 2
    held=$(gpus held)
    check "$to: ranks hold more of their GPUs than the contexts" all -gt $context $held
    answer=$(ask /v1/pause '{"release": true, "wait": true}')
    check "$to: pause --release is done" grep -q '"released_bytes": *[1-9]' <<<"$answer"
    check "$to: the driver has all but the contexts" all -eq $context $(gpus held)
    files=$(ls -d $to/.released-rank-* 2>/dev/null | wc -l)
    check "$to: its files" [ "$files" -eq $([[ $to == disk ]] && echo 2 || echo 0) ]
    take 1008
    answer=$(ask /v1/resume '{"wait": true}')
    check "$to: while somebody else has the memory it is not resumed" grep -q 'any more on .*GPU-.* are available' <<<"$answer"
    check "$to: it stays paused and released" grep -q '"released": *true' <<<"$(ask /v1/status)"
    check "$to: no rank took its memory" all -eq $context $(gpus held)
    let_go
    saved=$(ask /v1/checkpoint '{"wait": true}')
    check "$to: a checkpoint works meanwhile" grep -q '"path"' <<<"$saved"
    at=$(rows $to)
    answer=$(ask /v1/resume '{"wait": true}')
    wait_rows $to $((at + 2))
    check "$to: resume goes on" [ "$(rows $to)" -gt "$at" ]
    wait_held "$(head -n 1 <<<"$held")"
    check "$to: as much is held as before" all -eq "$(head -n 1 <<<"$held")" $(gpus held)
    check "$to: no file is left" [ -z "$(ls -d $to/.released-rank-* 2>/dev/null)" ]
    answer=$(ask /v1/stop '{"checkpoint": false, "wait": true}')
    finish_started
    check "$to: it stops with 0" code_is 0
    check "$to: that it could not be resumed was told once" [ "$(grep -c '^warning: .*not there any more' $to.err)" -eq 1 ]
    check "$to: the bits of a run that never paused" like_unpaused $to
done

# On the CPU there is nothing that the host's memory would free.
run cpu 0 "${settings[@]}" --set device.backend=cpu --set control.release_to=host
check "release_to = \"host\" on the CPU is refused" fails_with 78 E0213
plan
