#!/usr/bin/env bash
# A job that ends the same way whenever it is started: the fourth start is refused with 79, where another start would meet the
# same, and not where it may well go better. usage: test_poison.sh ZEROD SOURCE CALLS
calls=$(realpath "$3")
source=$(realpath "$2")
. "$(dirname "$0")/lib.sh"
. "$source/tests/support/small_job.sh"
small_job "$source/tests/fixtures"
ulimit -c 0
more=(--set train.max_steps=6 --set checkpoint.save_steps=100 --set checkpoint.export=none)
if ! timeout 60 "$zerod" --job job.toml "${more[@]}" --stop-after 1 >out 2>err; then
    cat err
    echo 'Bail out! the sound job does not run'
    exit 1
fi
mv run first
c=run/checkpoint-000001

fresh() { rm -rf run; cp -r first run; }
# start CODE RULE [ARGUMENT]...: the program with ZEROD_TEST_REFUSE=RULE (tests/support/calls.c) ends with CODE
start() {
    local want=$1 rule=$2 code=0
    shift 2
    # Rows are written beside the next step; the fault has to come before that one ends.
    LD_PRELOAD=$calls ZEROD_TEST_ROWS=1 ZEROD_TEST_REFUSE=$rule timeout -k 5 60 "$zerod" --job job.toml "${more[@]}" "$@" >out 2>err || code=$?
    [ $code = "$want" ] || { echo "exit $code, not $want"; return 1; }
} 2>/dev/null
times() {
    local i
    for ((i = 0; i < $1; i++)); do start "${@:2}" || { echo "in start $((i + 1))"; return 1; }; done
}
refused() {
    start 79 none "${@:2}" && has '^error\[E0815\]: the last 3 starts from run/checkpoint-000001 ended the same way' err &&
        has "$1" err
}
untouched() { [ "$before" = "$(cd run && find . -type f ! -name .zerod.lock ! -path './logs/*' -exec cksum {} + | sort)" ]; }
look() { before=$(cd run && find . -type f ! -name .zerod.lock ! -path './logs/*' -exec cksum {} + | sort); }

# Metrics get a row after each step: the first write is of step 2.
crash=write:metrics.jsonl:-11
fresh
ok 'three faults after step 2' times 3 139 $crash:1
look
ok 'the fourth start is refused, with 79' refused 'after step 2: signal 11 \(Segmentation fault\)'
ok 'and says what goes on' has "--resume $c tries once more" err
ok 'the fifth is too' refused 'signal 11'
ok 'nothing is touched' untouched
fresh
ok 'three faults again' times 3 139 $crash:1
ok 'one who names the checkpoint goes on' start 139 $crash:1 --resume $c
ok 'one who does not is refused still' refused 'signal 11'
fresh
ok 'three faults of one job' times 3 139 $crash:1
ok 'are none of a job that was changed' start 0 none --set optim.learning_rate=1e-4
fresh
ok 'three faults of one checkpoint' times 3 139 $crash:1
rm -r $c
ok 'are none of another start' start 0 none

fresh
ok 'an abort' times 3 134 write:metrics.jsonl:-6:1
ok 'is named' refused 'signal 6 \(Aborted\)'
fresh
ok 'two faults' times 2 139 $crash:1
ok 'and one of another kind' times 1 134 write:metrics.jsonl:-6:1
ok 'are not three' start 0 none
fresh
ok 'two faults after step 2' times 2 139 $crash:1
ok 'one after step 3' times 1 139 $crash:2
ok 'and two after step 2' times 2 139 $crash:1
ok 'are not three' start 139 $crash:1
ok 'but now they are' refused 'after step 2: signal 11'

fresh
ok 'four times KILL' times 4 137 write:metrics.jsonl:-9:1
ok 'is no reason' start 0 none
fresh
long=(--set train.max_steps=10000 --set run.on_sigterm=exit) # taken a moment later, by a thread of its own
ok 'four times TERM' times 4 75 write:metrics.jsonl:-15:1 "${long[@]}"
ok 'is no reason either' start 75 write:metrics.jsonl:-15:1 "${long[@]}"
fresh
ok 'four times a disk that fails' times 4 74 rename:checkpoint-000006:5
ok 'is none' start 0 none
fresh
ok 'faults with a KILL between' times 2 139 $crash:1
ok 'count' start 137 write:metrics.jsonl:-9:1
ok 'as three' start 139 $crash:1
ok 'and the next is refused' refused 'signal 11'

fresh
half=(--set train.dtype=fp16 --set train.fp16.initial_scale_power=32 --set train.fp16.min_loss_scale=4294967296
    --set train.fp16.hysteresis=1)
ok 'three times a gradient that overflows' times 3 79 none "${half[@]}"
ok 'is told as what it was' refused 'exit 79 \(a gradient overflowed in step 2 ' "${half[@]}"
ok 'and another type mends it' start 0 none
fresh
cp data.txt data.before
echo 'One line more.' >>data.txt
ok 'what setup finds wrong is for people' times 4 78 none
mv data.before data.txt
ok 'and mended by them' start 0 none

# A rank other than the first.
fresh
ranks() {
    local want=$1 rule=$2 code=0
    timeout -k 5 60 mpirun --oversubscribe -np 2 -x LD_PRELOAD="$calls" -x ZEROD_TEST_REFUSE="$rule" "$zerod" --job job.toml \
        "${more[@]}" >out 2>err || code=$?
    [ $code = "$want" ] || { echo "exit $code, not $want"; return 1; }
}
for i in 1 2 3; do ok "rank 1 faults, $i" ranks 139 write:shard-00002:-11; done
ok 'and is told of' ranks 79 none
ok 'by one line' [ "$(grep -c '^error\[E0815\].*step 6: signal 11' err)" = 1 ]
tests_end
