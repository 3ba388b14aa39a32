#!/usr/bin/env bash
# A paused run gives its memory back: real processes, over the socket. And a deadline as Slurm gives it.
source "$(dirname "$0")/lib.sh" "$1" "$2"
command -v curl >/dev/null || skip_all "no curl"
long=(--set train.max_steps=1000000 --set log.logging_steps=1000 --set checkpoint.save_strategy=steps
    --set checkpoint.save_steps=900000)

# ask PATH [BODY]: GET, or POST with a body.
ask() {
    local method=()
    [[ $# -eq 1 ]] || method=(-X POST -d "$2")
    curl -sS --max-time 200 --unix-socket "$socket" "${method[@]}" "http://zerod$1"
}
# Resident megabytes of the largest rank.
largest() { local each; for each in $(children "$pid"); do sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$each/status"; done |
    sort -n | tail -n 1 | awk '{ print int($1 / 1000) }'; }
less() { [[ $1 -gt 0 && $1 -lt $2 ]] || { echo "$1 MB, not below $2"; return 1; }; }

# Mostly embedding: hundreds of megabytes on each of two ranks.
cp job.toml small.toml
sed -i '/^\[model\]/,/^$/d' job.toml
cat >>job.toml <<'END'
[model.config]
model_type = "llama"
hidden_size = 256
intermediate_size = 256
num_hidden_layers = 1
num_attention_heads = 4
num_key_value_heads = 4
vocab_size = 130000
max_position_embeddings = 64
tie_word_embeddings = true
[control]
socket = "./s"
END
socket=./s
start big 2 "${long[@]}" --set zero.stage=1 --set train.per_device_train_batch_size=1 --set train.global_batch_size=2
wait_rows big 1
note "a rank holds $(largest) MB"
check "a rank of the run holds more than 400 MB" [ "$(largest)" -gt 400 ]
answer=$(ask /v1/pause '{"release": true, "wait": true}')
check "pause --release is done" grep -q '"released_bytes": *[1-9]' <<<"$answer"
note "released, a rank holds $(largest) MB"
check "released, no rank holds 200 MB" less "$(largest)" 200
check "a file of each rank is in output_dir" [ "$(ls -d big/.released-rank-* | wc -l)" -eq 2 ]
check "the ranks say so" grep -q '"taken": *0' <<<"$(ask /v1/ranks)"
saved=$(ask /v1/checkpoint '{"wait": true}')
check "a checkpoint works meanwhile" grep -q '"path"' <<<"$saved"
check "and gives the memory back again" less "$(largest)" 200
at=$(rows big)
answer=$(ask /v1/resume '{"wait": true}')
wait_rows big $((at + 1))
check "resume goes on" [ "$(rows big)" -gt "$at" ]
check "the files are gone" [ -z "$(ls -d big/.released-rank-* 2>/dev/null)" ]
answer=$(ask /v1/profile '{"steps": 1, "wait": true}')
check "profile leaves a trace" grep -q '"path": *"[^"]*profile-[0-9]*.json"' <<<"$answer"
check "of both ranks" [ "$(grep -c process_name big/profile-*.json)" -eq 2 ]
answer=$(ask /v1/stop '{"checkpoint": false}')
finish_started
check "it stops with 0" code_is 0

cp small.toml job.toml
export SLURM_JOB_END_TIME=$(($(date +%s) + 100))
run slurm 2 "${long[@]}" --set run.deadline_margin=1h
check "within the margin of SLURM_JOB_END_TIME: 75" code_is 75
check "it says why" says "in time for the deadline .*SLURM_JOB_END_TIME"
check "a checkpoint that verifies is there" all_verify slurm
unset SLURM_JOB_END_TIME
run slurm 2 "${long[@]}" --set run.stop_after=2
check "the next start goes on" code_is 0
plan
