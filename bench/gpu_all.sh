#!/usr/bin/env bash
# The tests and the figures of a GPU in so many minutes, first those of which least is known (docs/measured/gpu.md); called again it
# goes on where it stopped.
#   bench/gpu_all.sh FOLDER [--minutes 9] [--results FOLDER] [--only NAME,NAME] [--again] [OPTION]...
# FOLDER: made by deploy/bundle.sh, or a build folder. Results go to gpu-tests.txt (tests/gpu.sh), gpu-bench.jsonl (bench/gpu.sh)
# and gpu-done.txt in --results, else in FOLDER; what lies in FOLDER from earlier calls is taken along. A unit is begun when the
# time that it is expected to take, on an H200, is left; --again also takes those that failed before. Other options are bench/gpu.sh's.
# Ends with 0 when nothing of this call failed, with 1 also when nothing is left but what failed before. Without a GPU that zerod can
# use it stops with 69 and notes nothing; 64: a word it does not know; 66: no such folder, or its payload is cut.
set -uo pipefail
here=$(dirname "$(dirname "$(readlink -f "$0")")")
# seconds expected, kind, name: a part of tests/gpu.sh or a row of bench/gpu.sh
units='
110 test kernels
60 row llama-1b-cut
40 row calibrate
220 row llama-8b-24gb-undo
220 row llama-8b-24gb-shared
100 row fp8-loss
120 row qwen3-8b-qlora-samples
200 row llama-8b-24gb-order
120 row llama-1b
110 row qwen3-8b-qlora
90 row llama-1b-fp8
90 row llama-1b-fp8-blockwise
110 row llama-8b-fp8
110 row llama-8b-fp8-blockwise
90 row llama-8b-lora-fp8
70 row start
120 row llama-8b
220 row llama-8b-24gb
200 row gpt2-xl-6gb
60 row adamw
150 row llama-3b
150 row gpt2-774m
220 row gpt2-xl
220 row llama-8b-24gb-2x8k
60 test parity
60 test adapters
90 test offload
15 row kernels
90 row gpt2-124m-cudnn
160 row llama-1b-cudnn
90 row fitted
120 row qwen3-8b-dora
110 row qwen3-8b-lora
120 row paged
100 row gpt2-124m
40 row gpt2-124m-cut
40 row gpt2-124m-cut-cudnn
60 row llama-1b-cut-cudnn
160 test ranks
400 test sanitizer
'
# shellcheck source=deploy/gpu-folder.sh
source "$here/deploy/gpu-folder.sh"
tell_usage "$@"
gpu_folder "$1"
shift
minutes=9 results=$folder only='' again=0 most=470 options=()
while [[ $# -gt 0 ]]; do
    case $1 in
        --minutes | --results | --only)
            [[ $# -ge 2 && -n $2 && $2 != --* ]] || refuse 64 "$1 wants a value"
            printf -v "${1#--}" %s "$2"
            shift 2
            ;;
        --again) again=1 && shift ;;
        *)
            # kernels on stand-ins take the CPU minutes
            if [[ $1 == --tiny ]]; then export ZEROD_GPU_STEPS=${ZEROD_GPU_STEPS:-2} && most=3600; fi
            options+=("$1") && shift
            ;;
    esac
done
[[ $minutes =~ ^[0-9]{1,6}$ ]] || refuse 64 "--minutes $minutes: a whole number is wanted"
names=$(while read -r _ kind name; do printf '%s %s ' "$name" "$kind-$name"; done <<<"$units")
for name in ${only//,/ }; do
    [[ " $names " == *" $name "* ]] || refuse 64 "--only $name: there is no such unit; there are: $(awk 'NF { print $2 "-" $3 }' <<<"$units" | xargs)"
done
python3 "$here/bench/gpu_rows.py" start --programs . --results . --check ${options[@]+"${options[@]}"} || exit
mkdir -p "$results" || exit 73
results=$(readlink -f "$results")
if [[ $results != "$folder" ]]; then
    for name in gpu-tests.txt gpu-bench.jsonl gpu-done.txt; do
        if [[ -e $folder/$name && ! -e $results/$name ]]; then cp "$folder/$name" "$results"; fi
    done
fi
finished=$results/gpu-done.txt
end=$((SECONDS + 10#$minutes * 60))

is_wanted() { # KIND NAME
    if [[ -n $only ]]; then [[ ,$only, == *,"$2",* || ,$only, == *,"$1-$2",* ]] || return 1; fi
    ! has_word "$1" "$2" ok
}
has_word() { grep -qs "^$1 $2 $3" "$finished"; }
# stop CODE: what no unit can get past ends the call, and is not the unit's failure.
stop() {
    echo "gpu_all.sh: stopped, nothing of it is noted"
    exit "$1"
}
failed=0 attempted=0 failed_before=()
# shellcheck source=tests/support/bounded.sh
source "$here/tests/support/bounded.sh"
while read -r seconds kind name; do
    [[ -n $name ]] || continue
    is_wanted "$kind" "$name" || continue
    if [[ $again -eq 0 ]] && has_word "$kind" "$name" failed; then
        failed_before+=("$kind-$name")
        continue
    fi
    attempted=1
    left=$((end - SECONDS))
    if [[ $left -lt $seconds ]]; then
        echo "-- $kind $name: not begun, $left s are left of the $seconds that it may take"
        continue
    fi
    [[ $left -le $most ]] || left=$most
    echo "-- $kind $name"
    begin=$SECONDS
    if [[ $kind == test ]]; then
        ZEROD_GPU_RESULTS=$results/gpu-tests.txt bounded "$left" "$here/tests/gpu.sh" "$folder" "$name" </dev/null
    else
        # a row of several rounds leaves time to the others
        limit=$((seconds * 3 / 2 < left ? seconds * 3 / 2 : left))
        bounded $((left + 5)) "$here/bench/gpu.sh" "$folder" "$name" --limit "$limit" --results "$results/gpu-bench.jsonl" \
            ${options[@]+"${options[@]}"} </dev/null >"$results/gpu-row.log" 2>&1
    fi
    code=$?
    if [[ $code -eq 64 || $code -eq 66 || $code -eq 69 ]]; then
        [[ $kind == test ]] || tail -n 25 "$results/gpu-row.log"
        stop $code
    fi
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
if [[ ${#failed_before[@]} -gt 0 ]]; then
    echo "failed before and not tried again without --again: ${failed_before[*]}"
    [[ $attempted -eq 1 ]] || failed=1
fi
exit $failed
