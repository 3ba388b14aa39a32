#!/usr/bin/env bash
# A rank that is slow is named once, in log, events, status and metrics; the others are not.
#   test_stragglers.sh ZEROD SOURCE_ROOT CALLS [gpu]      gpu: ranks with a GPU each over NCCL, on the stand-ins
source "$(dirname "$0")/lib.sh" "$1" "$2"
command -v curl >/dev/null || skip_all "curl is not installed"
socket=$folder/zerod/fixture-llama_odd.sock
ask() { curl -sS --max-time 20 --unix-socket "$socket" "http://zerod$1"; }

# Rank 1 of three takes five times as long as it would.
job=(--set train.max_steps=1000000 --set checkpoint.save_strategy=no --set checkpoint.export=none --set eval.eval_strategy=no --set log.progress=none)
if [[ ${4:-} == gpu ]]; then
    source "$(dirname "$0")/gpu_lib.sh"
    export ZD_STANDIN_SLOW=9@1
    python3 -B "$source_root/tests/support/tiny.py" .
    start slow 3 "${settings[@]}" "${job[@]}" --set job.name=fixture-llama_odd --set comm.backend=nccl --set zero.stage=2 \
        --set train.global_batch_size=3 --set data.cutoff_len=8
    count=55 # the ranks are compared once: the stand-ins are slow
else
    LD_PRELOAD=$3 ZEROD_TEST_SLOW=4 ZEROD_TEST_RANK=1 start slow 3 "${job[@]}"
    count=110 # twice
fi
wait_rows slow $count
for ((tries = 0; tries < 200; tries++)); do # what ranks report is asked for every two seconds
    ask /v1/ranks >ranks.json
    ! grep -q '"slowness":null' ranks.json || { sleep 0.1; continue; }
    break
done
ask /metrics >metrics
kill -USR1 "$pid"
finish_started
named() { [[ $(grep -c "$1" "$2") -eq 1 ]] || { grep -n "$1" "$2"; echo "not one line"; return 1; }; }
slowness() { python3 -I -c "
import json, sys
values = [each['slowness'] for each in sorted(json.load(open('ranks.json'))['ranks'], key=lambda each: each['rank'])]
print(values)
sys.exit(not (values[1] > 1.5 and max(values[0], values[2]) < 1.5))"; }
gauge() { grep -q '^zerod_rank_slowness_ratio{.*rank="1"} \(1\.[5-9]\|[2-9]\|[1-9][0-9]\)' metrics || { grep slowness metrics; return 1; }; }
check "a run with a rank that is slow ends as it is asked to" code_is 75
check "the rank is named once in the log" named "rank 1 ($(hostname)) is slow: over the last 50 steps it was busy [0-9.]* times as long" slow.err
check "  and once in events.jsonl" named "\"event\":\"straggler\",\"step\":[0-9]*,\"rank\":1,\"host\":\"$(hostname)\",\"ratio\":" slow/events.jsonl
check "  no other is" [ "$(grep -c '"event":"straggler"' slow/events.jsonl)" -eq 1 ]
check "  the status of the ranks has it" slowness
check "  and the metrics have" gauge
tests_end
