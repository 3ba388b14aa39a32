#!/usr/bin/env bash
# A job of two ranks under mpirun, asked and steered through curl: every path of docs/control.md.
source "$(dirname "$0")/../../mpi/lib.sh" "$1" "$2"
command -v curl >/dev/null || skip_all "curl is not installed"
socket=$folder/zerod/fixture-llama_odd.sock
long=(--set train.max_steps=1000000 --set log.logging_steps=1000 --set checkpoint.save_strategy=steps
    --set checkpoint.save_steps=900000 --set data.val_split=0.3 --set eval.eval_strategy=no
    --set eval.eval_on_start=false --set sample.steps=0 --set 'sample.prompts=["ab"]' --set sample.max_new_tokens=4)

# --- asking ----------------------------------------------------------------------------------------------------------
# get PATH [CURL OPTION...]: the answer is $body, its status $http.
get() {
    local path=$1
    shift
    http=$(curl -sS --max-time 100 --unix-socket "$socket" -o answer -w '%{http_code}' "$@" "http://zerod$path" 2>curl.err)
    body=$(cat answer 2>/dev/null)
    : >answer
}
post() { get "/v1/$1" -X POST -d "$2"; }
# number KEY, word KEY: of $body, the first one of that name
number() { grep -oE "\"$1\": *-?[0-9][0-9.e+-]*" <<<"$body" | head -n 1 | sed 's/.*: *//'; }
word() { grep -oE "\"$1\": *\"[^\"]*\"" <<<"$body" | head -n 1 | sed 's/.*: *"//; s/"$//'; }
answers() { [[ $http = "$1" ]] || { echo "it answers $http, not $1: $body"; cat curl.err; return 1; }; }
# refuses CODE WORD
refuses() { answers "$1" && [[ $(word code) = "$2" ]] || { echo "$body"; return 1; }; }
holds() { [[ $body == *"$1"* ]] || { echo "it lacks $1: $body"; return 1; }; }
# wait_for SECONDS COMMAND...: until it succeeds
wait_for() {
    local tries=$(($1 * 20))
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [[ $tries -gt 0 ]] || return 1
        sleep 0.05
    done
}
is_ready() { [[ -S $socket ]] && get /readyz && [[ $http = 200 ]]; }
# passed STEP: the run is beyond it
passed() { get /v1/status && [[ $(number step) -gt $1 ]]; }

# --- reading ---------------------------------------------------------------------------------------------------------
start live 2 "${long[@]}"
check "the socket answers while the job starts, and is ready after a step" wait_for 100 is_ready
[[ $failures -eq 0 ]] || tests_end
check "its folder is 0700 and it is 0600" [ "$(stat -c %a "${socket%/*}" "$socket" | tr '\n' ' ')" = "700 600 " ]
check "the start says where it is" says "control  $socket"

keys() { grep -oE '"[a-z_]+":' | grep -vxE '"(time|message)":' | sort -u; }
get /v1/status
sed -n '/^### status/,/^### ranks/p' "$source_root/docs/control.md" | sed -n '/^```json/,/^```$/p' | keys >keys.docs
keys <<<"$body" >keys.status
check "status has every key of docs/control.md, and no other" diff keys.docs keys.status
first=$(number step) most=$(number max_steps)
check "max_steps is the job's" [ "$most" = 1000000 ]
check "the step rises" wait_for 100 passed "$first"
check "and again" wait_for 100 passed "$((first + 2))"
eta_falls() {
    get /v1/status
    local eta seconds
    eta=$(number eta_seconds) seconds=$(number step_seconds)
    [[ -n $eta && -n $seconds ]] || { echo "$body"; return 1; }
    # what is left, at the speed that it tells of
    awk -v eta="$eta" -v left="$((most - $(number step)))" -v s="$seconds" \
        'BEGIN { d = eta / (left * s) - 1; exit !(d < 0.01 && d > -0.01) }' || { echo "$body"; return 1; }
}
check "the ETA is the steps that are left at their speed" eta_falls

for path in /v1 /v1/ranks /v1/memory /v1/metrics/history '/v1/metrics/history?name=train/loss&max=10' /v1/logs \
    '/v1/logs?rank=1&tail=5' /v1/config '/v1/samples?max=5' /v1/plan '/v1/events?since=0&follow=0' \
    /healthz /readyz /metrics /; do
    get "$path"
    check "GET $path" answers 200
done
get /v1/ranks
check "both ranks are told of" holds '"rank":1,'
get /v1/config
check "config tells where a value comes from" holds '"origin":"--set'
get '/v1/logs?tail=1'
check "a tail of one line is one line" [ "$(wc -l <<<"$body")" = 1 ]

name=second
run second 0 "${long[@]}"
check "a live job of the same name is 73" fails_with 73 E1040
name=live

# --- steering --------------------------------------------------------------------------------------------------------
post pause '{"wait": true}'
check "pause, and wait for it" answers 200
get /v1/status
held=$(number step)
check "it says so" [ "$(word state)" = paused ]
post checkpoint '{"wait": true}'
check "a checkpoint while paused" answers 200
check "its path is told" [ "$(word path)" = "live/$(newest live)" ]
check "it verifies" verifies "live/$(newest live)"
post eval '{"wait": true}'
check "an evaluation while paused, without a strategy" answers 200
check "its loss is told" [ -n "$(number eval_loss)" ]
post sample '{"prompt": "the", "max_new_tokens": 3, "wait": true}'
check "a sample while paused" answers 200
check "of the prompt" [ "$(word prompt)" = the ]
post sample '{"prompt": "the", "max_new_tokens": 1000000, "wait": true}'
check "more new tokens than there is room for are refused" answers 400
post sample '{"wait": true}'
check "and of the job's own prompts" answers 200
get /v1/samples
check "which are kept" holds '"prompt":"the"'
post set '{"learning_rate": 0.0001220703125, "logging_steps": 3, "wait": true}'
check "settings while paused" answers 200
check "as they are now, during the warm-up with its peak" holds '"peak_learning_rate":0.0001220703125'
next=$(number learning_rate)
check "with the next step's rate and what the warm-up makes of it" \
    grep -qE "\"note\":\"learning_rate is [0-9.e-]+ at step $((held + 1)), warms up to 0.0001221 at step " <<<"$body"
get /v1/status
check "it holds still" [ "$(number step)" = "$held" ]
post resume '{"wait": true}'
check "resume" answers 200
check "and it goes on" wait_for 100 passed "$held"
check "at the rate that was set" wait_for 100 grep -q "^{\"step\":$((held + 1)),.*\"learning_rate\":$next," live/metrics.jsonl
get /v1/config
check "config tells that it was set" holds "\"origin\":\"set after step $held\""
check "the screen follows logging_steps" wait_for 100 grep -q "^step $(((held + 3) / 3 * 3))/" live.err
post profile '{"steps": 2, "wait": true}'
check "a profile" answers 200
check "leaves a trace" [ -s "$(word path)" ]
post eval ''
check "without wait it is accepted" answers 202
done_evals() { [[ $(grep -c '"command":"eval"' live/events.jsonl) -ge 2 ]]; }
check "and done" wait_for 100 done_evals

# --- events ----------------------------------------------------------------------------------------------------------
curl -sS -N --max-time 600 --unix-socket "$socket" 'http://zerod/v1/events?since=0' >stream 2>/dev/null &
check "a stream gives what was, and what comes" wait_for 100 eval '[[ $(grep -c "^event: step" stream) -ge 30 ]]'
post checkpoint '{"wait": true}'
saved=$(word path)
check "a checkpoint is an event" wait_for 100 grep -q "^data: .*\"path\":\"$saved\"" stream
# what it has given whole so far: it goes on being written
head -n "$(grep -n '^$' stream | tail -n 1 | cut -d: -f1)" stream >given
ids() { sed -n 's/^id: //p' "$1"; }
check "ids rise by one" diff <(ids given) <(seq "$(ids given | head -n 1)" "$(ids given | tail -n 1)")
middle=$(ids given | tail -n 21 | head -n 1) # no old one: a job keeps its newest 4096
get '/v1/events?follow=0' -H "Last-Event-ID: $middle"
printf '%s\n' "$body" | sed -n 's/^data: //p' | head -n 20 >replayed
sed -n 's/^data: //p' given | tail -n 20 >streamed
check "what comes after an id is replayed as it was" diff streamed replayed
check "there is something to compare" [ "$(wc -l <replayed)" -eq 20 ]
curl -sS -N --max-time 600 --unix-socket "$socket" 'http://zerod/v1/logs?follow=1&tail=1' >followed 2>/dev/null &
check "a log that is followed goes on" wait_for 100 eval '[[ $(wc -l <followed) -ge 3 ]]'

# --- the end ---------------------------------------------------------------------------------------------------------
post stop '{"wait": true}'
check "stop" answers 200
last=$(word path)
finish_started
check "its exit code is 0" code_is 0
check "nothing is an error" no_error
check "the socket is gone" [ ! -e "$socket" ]
check "status.json says that it was stopped" grep -q '"state": "stopped"' live/status.json
check "the checkpoint of the stop verifies" verifies "$last"
check "it holds all steps done" [ "$last" = "live/$(printf 'checkpoint-%06d' "$(rows live)")" ]
check "streams have ended, and told of the end" wait_for 100 grep -q '"state":"stopped"' stream
kept_ids() { sed -n 's/^{"id":\([0-9]*\),.*/\1/p' live/events.jsonl; }
check "ids of events.jsonl rise" diff <(kept_ids) <(kept_ids | sort -nu)
check "every step has one row" diff <(column live step | sort -nu) <(seq "$(rows live)")

start readonly 2 "${long[@]}" --set control.readonly=true
check "a job with control.readonly is ready" wait_for 100 is_ready
post stop ''
check "control.readonly takes no commands" refuses 403 E_FORBIDDEN
kill -USR1 "$pid"
finish_started
check "it ends by USR1: 75" code_is 75

run silent 0 --set train.max_steps=3 --set device.cpu_threads=1 --set control.socket=none
check "a run without a socket" code_is 0
check "has its status.json all the same" grep -q '"state": "done"' silent/status.json
check "which names none" grep -q '"socket": null' silent/status.json
tests_end
