#!/usr/bin/env bash
# The scripts of the table of GPU figures, over models of nothing and without peers: a row that needs none, the order of
# all, and a run of it that goes on where the one before stopped.
#   test_rows.sh BUILD_FOLDER SOURCE_ROOT
build=$1
# shellcheck source=tests/support/tap.sh
. "$2/tests/support/tap.sh"
rows=$2/bench/gpu.sh all=$2/bench/gpu_all.sh
scratch_folder
cd "$work" || exit 99
export ZD_STANDIN_CONTEXT=1M ZD_STANDIN_MEMORY=2G OMP_NUM_THREADS=1
tiny=(--tiny --rounds 1 --steps 2)
one=(--minutes 8 --only "gpt2-xl-6gb,no-such-row" --results out "${tiny[@]}")

said() { # KEY: of the last result
    python3 -c 'import json, sys
print(json.loads(open("out/gpu-bench.jsonl").read().splitlines()[-1])'"$1"')'
}
row_is_whole() {
    [[ $(said '["row"]') == gpt2-xl-6gb && $(said '["ratio"]') != None ]] || return 1
    [[ $(said '["bytes"]["arena"]') -gt 1000000 && $(said '["bytes"]["used"]') -gt 1000000 ]]
}
ok "one row of all, in its minutes" "$all" "$build" "${one[@]}"
ok "its result has a ratio and bytes of the device" row_is_whole
ok "it is noted as done" grep -q '^row gpt2-xl-6gb ok' out/gpu-done.txt
before=$(wc -l <out/gpu-bench.jsonl)
"$all" "$build" "${one[@]}" >log 2>err
[[ $(wc -l <out/gpu-bench.jsonl) -eq $before ]]
tell $? "another call does not run it again"

"$all" "$build" --minutes 0 --results late "${tiny[@]}" >log 2>err
[[ ! -s late/gpu-done.txt && $(grep -c 'not begun' log) -ge 15 ]]
tell $? "without time nothing is begun"

ZEROD_PEER_PYTHON=$work/none "$rows" "$build" adamw "${tiny[@]}" --results out/gpu-bench.jsonl >log 2>err
code=$?
[[ $code -eq 0 && $(said '["rounds"][0]["peer"]["missing"]') == *none ]]
tell $? "a peer that is not installed is no failure"

mkdir -p broken/daemon
printf '#!/bin/sh\nexit 3\n' >broken/daemon/zerod && chmod +x broken/daemon/zerod
"$all" "$work/broken" --minutes 9 --only gpt2-124m "${tiny[@]}" >log 2>err
[[ $? -eq 1 && $(cat broken/gpu-done.txt) == 'row gpt2-124m failed'* ]]
tell $? "a run of ours that fails fails the row"
"$rows" "$work/broken" table >log 2>err && grep -q 'gpt2-124m (tiny) FAILED' log
tell $? "and the table says so"
tests_end
