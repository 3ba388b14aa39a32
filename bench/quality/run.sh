#!/usr/bin/env bash
# Train bench/quality/job.toml with each optimizer and seed, then draw docs/optimizers.svg and print a table of where they end.
#   bench/quality/run.sh ZEROD [NAME_SEED]...      default: all; results in out/quality, runs that are there are not repeated
# Run from the repository's root. A run takes about a quarter of an hour on one core with bf16 instructions; two may run side by side.
set -euo pipefail
zerod=$1
shift
declare -A sets=(
    [adamw]=""
    [adamw_8bit]="optim.name=adamw_8bit"
    [paged_adamw_32bit]="optim.name=paged_adamw_32bit device.memory_limit=390MiB"
    [paged_adamw_8bit]="optim.name=paged_adamw_8bit device.memory_limit=358MiB"
    [adam_mini]="optim.name=adam_mini"
    [adam_mini_8bit]="optim.name=adam_mini_8bit"
    [lion]="optim.name=lion optim.learning_rate=2e-4"
    [lion_8bit]="optim.name=lion_8bit optim.learning_rate=2e-4"
)
runs=("$@")
if [[ ${#runs[@]} -eq 0 ]]; then
    for seed in 1 2 3; do
        for name in adamw adamw_8bit paged_adamw_32bit paged_adamw_8bit adam_mini adam_mini_8bit lion lion_8bit; do
            runs+=("${name}_$seed")
        done
    done
fi
for run in "${runs[@]}"; do
    out=out/quality/$run seed=${run##*_} name=${run%_*}
    if [[ -e $out/metrics.jsonl && $(grep -c '"loss"' "$out/metrics.jsonl") -ge 740 ]]; then continue; fi
    rm -rf "$out"
    arguments=(--set "job.output_dir=$out" --set "job.seed=$seed" --set "job.data_seed=$seed")
    for set in ${sets[$name]}; do arguments+=(--set "$set"); done
    echo "== $run" >&2
    "$zerod" --job bench/quality/job.toml "${arguments[@]}"
done
python3 bench/quality/draw.py out/quality docs/optimizers.svg
