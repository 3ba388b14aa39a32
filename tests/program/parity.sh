#!/usr/bin/env bash
# Train a fixture with zerod and hold losses, norms and final weights against PyTorch's (tests/train holds all fixtures and
# worlds, over ranks that are threads and over MPI); let each continue a text.
#   parity.sh ZEROD EXPECTED       prints TAP; run from the repository's root
set -uo pipefail
zerod=$1 expected=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
. tests/support/tap.sh
scratch_folder

train() { # FIXTURE WORLD STAGE DTYPE
    local fixture=tests/fixtures/$1 out=$work/out code=0
    local -a start=()
    rm -rf "$out"
    if [[ $2 -gt 1 ]]; then start=(mpirun --oversubscribe --bind-to none -np "$2"); fi
    timeout 60 "${start[@]}" "$zerod" --job "$fixture/job.toml" --set "job.output_dir=$out" --set "zero.stage=$3" \
        --set "train.dtype=$4" --set "data.cache_dir=$work/cache" >"$work/log" 2>&1 </dev/null || code=$?
    if [[ $code -eq 0 ]]; then
        "$expected" run "$fixture" "$out" "$4" || code=$?
    else
        tail -n 5 "$work/log" | sed 's/^/# /'
    fi
    tell "$code" "$1 $4, $2 ranks, stage $3"
}

generate() { # FIXTURE [ADAPTER]: a folder of the fixture, as PEFT wrote it
    local fixture=tests/fixtures/$1 code=0
    local from=$fixture${2:+/$2}
    local -a adapter=()
    if [[ -n ${2:-} ]]; then adapter=(--adapter "$from"); fi
    local prompt
    prompt=$("$expected" prompt "$from"; echo .) # $() drops newlines at the end
    "$expected" continuation "$from" >"$work/wanted"
    "$zerod" generate --model "$fixture/model" "${adapter[@]}" --prompt "${prompt%.}" --max-new-tokens 64 \
        >"$work/got" 2>"$work/log" </dev/null || code=$?
    cmp "$work/wanted" "$work/got" >"$work/cmp" 2>&1 || { code=1; cat "$work/cmp" "$work/log" | sed 's/^/# /'; }
    tell "$code" "$1${2:+, $2} continues a text as transformers does${2:+ with peft}"
}

train llama 1 0 fp32
train llama 3 2 fp32
train llama 2 3 bf16
for path in tests/fixtures/*/job.toml; do
    name=$(basename "$(dirname "$path")")
    generate "$name"
    for kind in lora dora; do
        [[ ! -d tests/fixtures/$name/$kind ]] || generate "$name" "$kind"
    done
done
tests_end
