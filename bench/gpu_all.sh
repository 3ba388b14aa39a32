#!/usr/bin/env bash
# The tests and the figures of a GPU, the most telling first, in so many minutes; called again it goes on where it stopped.
#   bench/gpu_all.sh FOLDER [--minutes 9] [--results FOLDER] [--only NAME,NAME] [--again] [OPTION]...
# FOLDER: made by deploy/bundle.sh, or a build folder. Results go to gpu-tests.txt (tests/gpu.sh), gpu-bench.jsonl (bench/gpu.sh)
# and gpu-done.txt in --results, else in FOLDER; what lies in FOLDER from earlier calls is taken along. A unit is begun when the
# time that it is expected to take, on an H200, is left; --again also takes those that failed. Other options are bench/gpu.sh's.
# Ends with 0 when nothing of this call failed.
set -uo pipefail
here=$(dirname "$(dirname "$(readlink -f "$0")")")
# seconds expected, kind, name: a part of tests/gpu.sh or a row of bench/gpu.sh
units='
110 test kernels
150 row gpt2-124m
70 row start
60 row adamw
220 row llama-8b-24gb
60 test parity
90 test offload
200 row gpt2-xl-6gb
180 row llama-8b
120 row kernels
120 row llama-1b
220 row gpt2-xl
240 row paged
150 row gpt2-774m
150 row llama-3b
120 test ranks
220 row llama-8b-24gb-2x8k
400 test sanitizer
'
folder=$(readlink -f "${1:?the folder that deploy/bundle.sh made, or a build folder}") || exit 66
shift
minutes=9 results=$folder only='' again=0 options=()
while [[ $# -gt 0 ]]; do
    case $1 in
        --minutes) minutes=$2 && shift 2 ;;
        --results) results=$2 && shift 2 ;;
        --only) only=$2 && shift 2 ;;
        --again) again=1 && shift ;;
        *) options+=("$1") && shift ;;
    esac
done
mkdir -p "$results" || exit 73
results=$(readlink -f "$results")
if [[ $results != "$folder" ]]; then
    for name in gpu-tests.txt gpu-bench.jsonl gpu-done.txt; do
        if [[ -e $folder/$name && ! -e $results/$name ]]; then cp "$folder/$name" "$results"; fi
    done
fi
finished=$results/gpu-done.txt
touch "$finished"
end=$((SECONDS + minutes * 60))

is_wanted() { # KIND NAME
    if [[ -n $only ]]; then [[ ,$only, == *,"$2",* || ,$only, == *,"$1-$2",* ]] || return 1; fi
    if grep -q "^$1 $2 ok" "$finished"; then return 1; fi
    [[ $again -eq 1 ]] || ! grep -q "^$1 $2 failed" "$finished"
}
failed=0
while read -r seconds kind name; do
    [[ -n $name ]] || continue
    is_wanted "$kind" "$name" || continue
    left=$((end - SECONDS))
    if [[ $left -lt $seconds ]]; then
        echo "-- $kind $name: not begun, $left s are left of the $seconds that it may take"
        continue
    fi
    [[ $left -le 470 ]] || left=470
    echo "-- $kind $name"
    begin=$SECONDS
    if [[ $kind == test ]]; then
        ZEROD_GPU_RESULTS=$results/gpu-tests.txt timeout -k 10 "$left" "$here/tests/gpu.sh" "$folder" "$name" </dev/null
    else
        # a row of several rounds leaves time to the others
        limit=$((seconds * 3 / 2 < left ? seconds * 3 / 2 : left))
        timeout -k 10 $((left + 5)) "$here/bench/gpu.sh" "$folder" "$name" --limit "$limit" --results "$results/gpu-bench.jsonl" \
            ${options[@]+"${options[@]}"} </dev/null >"$results/gpu-row.log" 2>&1
    fi
    code=$?
    word=ok
    if [[ $code -eq 124 || $code -eq 137 ]]; then
        word="cut" # is begun anew
    elif [[ $code -ne 0 ]]; then
        word=failed
    fi
    if [[ $word != ok ]]; then
        failed=1
        [[ $kind == test ]] || tail -n 25 "$results/gpu-row.log"
    fi
    echo "$kind $name $word, code $code, $((SECONDS - begin)) s, $(date -u +%FT%TZ)" | tee -a "$finished"
done <<<"$units"
"$here/bench/gpu.sh" "$folder" table --results "$results/gpu-bench.jsonl"
exit $failed
