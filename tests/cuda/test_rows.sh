#!/usr/bin/env bash
# The scripts of the table of GPU figures, over models of nothing and without peers: a row that needs none, the order of
# all, and a run of it that goes on where the one before stopped; and how the scripts refuse what they cannot do.
#   test_rows.sh BUILD_FOLDER SOURCE_ROOT [whole]     whole: all units of it, which takes minutes
build=$1
# shellcheck source=tests/support/tap.sh
. "$2/tests/support/tap.sh"
rows=$2/bench/gpu.sh all=$2/bench/gpu_all.sh
scratch_folder
cd "$work" || exit 99
export ZD_STANDIN_CONTEXT=1M ZD_STANDIN_MEMORY=2G OMP_NUM_THREADS=1
tiny=(--tiny --rounds 1 --steps 2)
units=$(grep -cE '^[0-9]+ (test|row) ' "$all")
if [[ ${3:-} == whole ]]; then
    ok "every row and every part of the tests" "$all" "$build" --minutes 600 --results out "${tiny[@]}"
    [[ $units -gt 35 && $(grep -c ' ok, ' out/gpu-done.txt) -eq $units ]]
    tell $? "all $units of them are noted as done"
    [[ $(grep -c FAILED out/gpu-tests.txt) -eq 0 && $(grep -c '| skipped: ' out/gpu-tests.txt) -gt 0 ]]
    tell $? "what needs a GPU is said to be skipped, and nothing failed"
    tests_end
fi
one=(--minutes 8 --only gpt2-xl-6gb --results out "${tiny[@]}")

said() { # KEY: of the last result
    python3 -I -c 'import json, sys
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

documents_are_cut() { # at 20 tokens in the mean, of few; the loss of the peer, which sees across the cuts, is another
    python3 -I - <<'END'
import json
result = json.loads(open("out/gpu-bench.jsonl").read().splitlines()[-1])
ours, peer = (result["rounds"][0][name] for name in ("ours", "peer"))
assert result["row"] == "llama-1b-cut" and "failed" not in result and 12 < result["tokens_of_a_document"] < 40, result
assert abs(ours["loss"] - peer["loss"]) > 1e-7 and result["ratio"], (ours["loss"], peer["loss"])
END
}
"$rows" "$build" llama-1b-cut --tiny --rounds 1 --steps 1 --results out/gpu-bench.jsonl >log 2>err
tell $? "a row of documents that end of text cuts"
ok "they are cut, and those of its peer are not" documents_are_cut

"$all" "$build" --minutes 0 --results late "${tiny[@]}" >log 2>err
[[ ! -s late/gpu-done.txt && $(grep -c 'not begun' log) -eq $units ]]
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
"$all" "$work/broken" --only gpt2-124m "${tiny[@]}" >log 2>err
[[ $? -eq 1 && $(wc -l <broken/gpu-done.txt) -eq 1 ]] && grep -q -- '--again: row-gpt2-124m' log
tell $? "it is not tried again without --again, and that is said"

# --- refusals
# ends CODE WHAT COMMAND...: ends with CODE, without a traceback, and makes no file or folder here.
ends() {
    local code=$1 what=$2 before
    shift 2
    before=$(find . ! -name log ! -name err | sort)
    "$@" >log 2>err
    [[ $? -eq $code && $(find . ! -name log ! -name err | sort) == "$before" ]] && ! grep -q Traceback log err
    tell $? "$what"
}
for script in tests/gpu.sh bench/gpu.sh bench/gpu_all.sh deploy/bundle.sh; do
    ends 0 "$script --help is usage" "$2/$script" --help
    ends 64 "$script alone" "$2/$script"
    ends 66 "$script and a folder that is not there" "$2/$script" nosuch out
done
mkdir empty
for script in tests/gpu.sh bench/gpu.sh bench/gpu_all.sh; do ends 66 "$script and a folder of nothing" "$2/$script" empty; done
ends 64 "a part that there is not" "$2/tests/gpu.sh" "$build" kernels nosuch
ends 64 "a row that there is not" "$rows" "$build" nosuch
ends 64 "an option that there is not" "$all" "$build" --nosuch --results none
ends 64 "a unit that there is not" "$all" "$build" --only gpt2-124m,nosuch --results none
ends 64 "minutes without a number" "$all" "$build" --minutes

mkdir -p home/daemon
printf '#!/bin/sh\necho "error[E1201]: there is no NVIDIA driver on this machine" >&2\nexit 69\n' >home/daemon/zerod && chmod +x home/daemon/zerod
ends 69 "a row without a GPU leaves no result" "$rows" "$work/home" gpt2-124m "${tiny[@]}"
"$all" "$work/home" --results away "${tiny[@]}" --only gpt2-124m,start >log 2>err
[[ $? -eq 69 && ! -e away/gpu-done.txt && ! -e away/gpu-bench.jsonl && $(grep -c '^-- row' log) -eq 1 ]]
tell $? "all of them without a GPU stop at the first, and none is noted"

mkdir cut && head -c 1000 /dev/urandom >cut/payload.tar.xz
ZEROD_BUNDLE_DIR=$work/unpacked ends 66 "a payload that is cut: the tests" "$2/tests/gpu.sh" cut
ZEROD_BUNDLE_DIR=$work/unpacked ends 66 "a payload that is cut: a row" "$rows" cut adamw

# What a script runs in bounded time ends with it, also in a group of its own: nothing is left on the GPU for the next.
cat >cut.sh <<END
source "$2/tests/support/bounded.sh"
bounded 300 sh -c 'sleep 300 & echo \$! >worker.tmp && mv worker.tmp worker && wait'
END
bash cut.sh >log 2>err &
script=$! tries=0
while [[ ! -e worker && -d /proc/$script ]]; do sleep 0.05; done
kill "$script"
wait "$script"
code=$?
while [[ $(sed 's/.*) //; s/ .*//' "/proc/$(cat worker)/stat" 2>/dev/null) == [RSD] ]]; do
    [[ $((tries++)) -lt 1000 ]] || break
    sleep 0.05
done
[[ $code -eq 143 && $tries -lt 1000 ]]
tell $? "a test that is cut ends with all that it ran"
tests_end
