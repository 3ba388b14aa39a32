#!/usr/bin/env bash
# zerodctl against a real job of one rank: each command once, and what is left when it was stopped.
# usage: test_zerodctl.sh ZEROD SOURCE ZERODCTL
source_root=$(realpath "$2") ctl=$(realpath "$3")
. "$2/tests/cli/lib.sh"
export TZ=UTC
job=
ln -s "$source_root/tests" tests
if "$ctl" ls 2>/dev/null | sed 1d | grep -q .; then
    skip 'each command of the only job' 'another job of this user runs on this machine'
    tests_end
fi
# A job keeps its newest 4096 events, each step's among them: steps of some milliseconds, so that a command stays for a while.
sed -e 's|^\[job\]|[job]\noutput_dir = "made"|' -e 's|^\[data\]|[data]\ncache_dir = "cache"|' \
    -e 's|^name = "fixture-llama_odd"|name = "tested"|' -e 's|^max_steps = .*|max_steps = 1000000|' \
    -e 's|^global_batch_size = .*|per_device_train_batch_size = 8|' \
    tests/fixtures/llama_odd/job.toml >job.toml
cat >>job.toml <<'TOML'
[[data.eval]]
path = "tests/fixtures/llama_odd/data.bin"
format = "nanogpt"
[eval]
eval_strategy = "no"
eval_on_start = false
max_batches = 1
[device]
cpu_threads = 1
TOML

# ctl CODE ARGUMENT...: in bounded time; stdout in `out.txt`, stderr in `err`; no escape code anywhere
ctl() {
    local want=$1 code
    shift
    timeout 120 "$ctl" "$@" >out.txt 2>err </dev/null
    code=$?
    [ $code = "$want" ] || { echo "exit $code, not $want: $*"; cat err; return 1; }
    ! grep -q "$(printf '\033')" out.txt err
}
says() { has "$1" out.txt || { cat out.txt; return 1; }; }
# shows CODE PATTERN ARGUMENT...: as ctl, and stdout has a line like that
shows() {
    local code=$1 pattern=$2
    shift 2
    ctl "$code" "$@" && says "$pattern"
}
step() { "$ctl" status -o json | sed -n 's/^  "step": \([0-9]*\).*/\1/p'; }
# Wait until the job has made a step, or is gone.
wait_for_step() {
    until [ "$(step 2>/dev/null || echo 0)" -ge "$1" ] 2>/dev/null; do
        kill -0 "$job" 2>/dev/null || return 1
        sleep 0.05
    done
}

ok 'no job: 66' ctl 66 status
"$zerod" --job job.toml >zerod.out 2>zerod.err &
job=$!
ok 'the job makes steps' wait_for_step 2 2>/dev/null

ok 'ls' shows 0 '^tested +[a-z]+ +[0-9]+/1000000' ls
ok 'status' shows 0 '1 rank, ZeRO stage' status
ok 'status -o json' shows 0 '"gradient_accumulation_steps"' status -o json
ok 'the name of a job as an argument: 64' ctl 64 status live
ok '  and how it is given' grep -q 'help: -j live' err
ok 'top in a pipe: one frame' shows 0 '^RANK .* STEP' top
ok 'ranks' shows 0 " $job$" ranks
ok 'memory' shows 0 '^ +0 +device' memory
ok 'logs' shows 0 '^20[0-9-]*T' logs --rank 0 -n 5
ok 'a log that is not there: 64' ctl 64 logs --rank 7
ok '  and who is there is a command away' grep -q 'zerodctl ranks lists them' err
ok 'metrics' shows 0 '^train/loss' metrics
ok 'metrics --csv' shows 0 '^1,[0-9.]+$' metrics loss --csv
ok 'plot' shows 0 '└─' plot
ok 'config' shows 0 'train.max_steps +1000000 +job.toml' config train.max_steps

ok 'checkpoint' ctl 0 checkpoint
path=$(sed 's/.*: //' out.txt)
ok '  it is there, and verifies' call 0 ckpt verify "$path"
ok 'eval' shows 0 '^eval loss [0-9.]+ at step' eval
ok 'sample' shows 0 '^Once upon a time' sample "Once upon a time" --max-new-tokens 4
ok 'sample --chat: the answer alone' eval 'ctl 0 sample --chat Hi --max-new-tokens 4 && [ -s out.txt ] && ! grep -q ^Hi out.txt'
ok '  its event says so' eval '"$ctl" events -o json | grep -q "\"command\":\"sample\",\"prompt\":\"Hi\",\"chat\":true"'
ok 'samples' shows 0 '^Once upon a time' samples
ok '  a chat below its prompt' says '^> Hi$'
ok 'set' shows 0 'save_steps = 700000 .was 500.' set optim.learning_rate=1e-3 save_steps=700000
ok '  what changes, and no more' eval 'says "learning_rate = .*was" && ! grep -q logging_steps out.txt'
ok 'a value out of range: 64' ctl 64 set learning_rate=-1
ok '  what it must be' eval 'grep -q "must be a number above 0" err && grep -q "help: like zerodctl set learning_rate=" err'
ok 'an unknown setting: those that there are' eval 'ctl 64 set frobnicate=1 && grep -q "it takes learning_rate, " err && ! grep -q wait err'
ok 'more micro-batches than memory was planned for: 69' ctl 69 set gradient_accumulation_steps=1000
ok '  how many, and how to go on with more' grep -q 'at most zerodctl set gradient_accumulation_steps=[0-9]*; .*train.gradient_accumulation_steps = 1000 in the job' err
ok 'pause' ctl 0 pause
before=$(step)
ok '  status says so' eval '"$ctl" status | head -1 | grep -q paused'
ok 'checkpoint while paused' ctl 0 checkpoint
ok '  and no step was made' [ "$(step)" = "$before" ]
ok 'resume' ctl 0 resume
ok '  steps go on' wait_for_step $((before + 2))
ok 'profile' ctl 0 profile 2
ok '  a trace' grep -q traceEvents "$(head -1 out.txt)"
ok 'eval --no-wait' shows 0 queued eval --no-wait
ok 'events' ctl 0 events
ok '  commands and what came of them' eval 'says "command +checkpoint" && says "eval +eval_loss" && says "state +paused"'
ok 'events -o json: one object a line' ctl 0 events -o json -n 3
ok '  three of them' [ "$(grep -c '^{"id":' out.txt)" = 3 ]
ok '--dir finds the socket' ctl 0 set logging_steps=100 --dir made

"$ctl" logs -f >followed 2>/dev/null &
follower=$!
"$ctl" status -w -i 0.1s >watched 2>/dev/null &
watcher=$!
# Both have found the job before it goes.
until [ -s followed ] && [ -s watched ]; do
    for each in "$job" "$follower" "$watcher"; do kill -0 "$each" 2>/dev/null || break 2; done
    sleep 0.05
done
ok 'stop' shows 0 'stopped after step [0-9]+, checkpoint made/' stop
wait "$job"
code=$?
job=
ok '  the job ends with 0' [ $code = 0 ]
ok '  its socket is gone' [ ! -e zerod/tested.sock ]
ok '  its checkpoint verifies' call 0 ckpt verify "$(sed -n 's/.*checkpoint //p' out.txt | head -1)"
wait "$follower"
code=$?
ok '  logs -f has ended with the job' [ $code = 0 ]
wait "$watcher"
code=$?
ok '  status -w too' [ $code = 0 ]
ok 'a job that ended: 66' ctl 66 status
ok '--dir tells how it ended' shows 0 '^tested +stopped' status --dir made

# --- stopped without a checkpoint ---
"$zerod" --job job.toml --set job.output_dir=soon --set checkpoint.save_strategy=no >zerod.out 2>zerod.err &
job=$!
ok 'a job without a checkpoint makes steps' wait_for_step 2 2>/dev/null
ok 'stop --now' shows 0 'stopped after step [0-9]+$' stop --now
wait "$job"
job=
ok '  the run says that the next one begins at step 1' has '^stopped on request after step [0-9]+; there is no checkpoint: .* step 1$' zerod.err

# --- resumed, and killed ---
last=$(sed -n 's/^ *"step": \([0-9]*\).*/\1/p' made/status.json | head -1)
ok 'the job resumes' call 0 --job job.toml --stop-after $((last + 1))
ok '  and says what was set while it ran' has 'set +optim.learning_rate = 0.001, .*logging_steps = 100.*still in force' err
"$zerod" --job job.toml >zerod.out 2>zerod.err &
job=$!
ok 'the job makes steps again' wait_for_step $((last + 3)) 2>/dev/null
# status.json is written every two seconds, and says "running" from the first
until grep -q '"state": "running"' made/status.json; do sleep 0.05; done
ok '--dir: a run that lives is no dead one' ctl 0 status --dir made
mkdir strange
cp made/status.json strange
ok "--dir: a stranger's folder that names this job does not reach it" ctl 69 stop --dir strange
ok '  and is told so' grep -q "status.json names the socket of another folder's job" err
kill -KILL "$job"
wait "$job" 2>/dev/null
ok '--dir: a run that was killed is 69' shows 69 '^tested +died after step [0-9]+ ' status --dir made
ok "  with its step" grep -qE "E1099.*the run died after step [0-9]+" err
ok '  by its name: where to look' eval 'ctl 66 -j tested status && grep -q "zerodctl --dir OUTPUT_DIR status" err'
ok '  in JSON too' shows 69 '"state": "died"' status --dir made -o json
job=
# A run that ends gives its lock back before it writes how it ended; and the numbers of the dead are given again.
cp made/status.json dead.json
cp "$(command -v sleep)" zerod-sleep
./zerod-sleep 1000 &
job=$!
sed "s/^  \"pid\": .*/  \"pid\": $job,/" dead.json >made/status.json
ok '--dir: one that still is there may write its end' ctl 0 status --dir made
kill -KILL "$job"
wait "$job" 2>/dev/null
job=
sed "s/^  \"pid\": .*/  \"pid\": $$,/" dead.json >made/status.json
ok '--dir: a process that is no zerod is none' ctl 69 status --dir made
sed 's/^  "host": ".*"/  "host": "elsewhere.example"/' dead.json >made/status.json
ok '--dir: of another host nothing is known' ctl 0 status --dir made
cp dead.json made/status.json
ok '--dir: its files are read' ctl 0 metrics loss --dir made
ok '--dir: it takes no command' ctl 66 pause --dir made

# --- someone else has the name of the folder of sockets ---
mkdir taken
ln -s /tmp taken/zerod
ok 'a folder of sockets that is a link: the run goes on without a socket' env XDG_RUNTIME_DIR="$PWD/taken" bash -c \
    "'$zerod' --job job.toml --stop-after $((last + 9)) >zerod.out 2>zerod.err"
ok '  which is said once' test "$(grep -c 'is a link, or not a folder: .*this run has no socket' zerod.err)" = 1
tests_end
