#!/usr/bin/env bash
# Commands at random moments, over the real socket: no step is lost, no bit changes, nothing hangs.
#   test_control.sh ZEROD SOURCE_ROOT [TRIALS [SEED]]
source "$(dirname "$0")/lib.sh" "$1" "$2"
command -v curl >/dev/null || skip_all "curl is not installed"
trials=${3:-3} seed=${4:-$RANDOM}
RANDOM=$seed
note "seed $seed"
socket=$folder/zerod/fixture-llama_odd.sock
steps=(--set train.max_steps=40 --set checkpoint.save_strategy=steps --set checkpoint.save_steps=15 --set data.val_split=0.3
    --set eval.eval_strategy=no --set eval.eval_on_start=false --set sample.steps=0 --set 'sample.prompts=["ab"]'
    --set sample.max_new_tokens=4)

# post COMMAND BODY: $http, "000" when nobody answers any more
post() {
    http=$(curl -sS --max-time 100 --unix-socket "$socket" -o answer -w '%{http_code}' -X POST -d "$2" \
        "http://zerod/v1/$1" 2>/dev/null)
    said+="$1 $2: $http; "
}
# An answer that is none of the contract's, or a command that was tried and failed.
is_odd() { [[ $http != 200 && $http != 202 && $http != 409 && $http != 503 && $http != 000 ]]; }
nap() { sleep "0.$(printf %02d $((RANDOM % 15)))"; }
has_socket() {
    local tries=0
    until [[ -S $socket || $tries -gt 3000 ]]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}
commands=('pause {}' 'pause {"wait":true}' 'resume {}' 'resume {"wait":true}' 'checkpoint {}'
    'checkpoint {"wait":true}' 'sample {"wait":true}' 'eval {}' 'eval {"wait":true}' 'profile {"steps":2}')

# steer NAME: commands, until it has had eight of them; it runs on afterwards.
steer() {
    local i each
    odd='' said=''
    has_socket
    for i in 1 2 3 4 5 6 7 8; do
        each=${commands[RANDOM % ${#commands[@]}]}
        post "${each%% *}" "${each#* }"
        ! is_odd || odd+="$each: $http $(cat answer) "
        nap
    done
    go_on
}
# Until it runs, whatever still waits for its step boundary.
go_on() {
    local tries=0 now
    while [[ $tries -lt 200 ]]; do
        now=$(curl -sS --max-time 100 --unix-socket "$socket" http://zerod/v1/status 2>/dev/null) || return 0
        [[ $now != *'"paused":false'*'"pending":[]'* ]] || return 0
        post resume '{"wait":true}'
        tries=$((tries + 1))
        nap
    done
}
# The rows of steps alone: evaluations that were asked for have rows too.
same_steps() { sed -i '/"eval_loss"/d' "$1/metrics.jsonl" "$2/metrics.jsonl" && same_run "$1" "$2"; }
not_odd() { [[ -z $odd ]] || { echo "$odd"; return 1; }; }

for ranks in 1 2 3; do
    run whole-$ranks $ranks "${steps[@]}"
    check "$ranks ranks: the run that nobody disturbs" code_is 0
done
for ((trial = 1; trial <= trials; trial++)); do
    ranks=$((1 + trial % 3))
    start trial-$trial $ranks "${steps[@]}"
    steer
    if [[ $((RANDOM % 2)) = 1 ]]; then
        post stop '{"wait":true}'
        note "trial $trial: $said"
        finish_started
        check "trial $trial: stopped with 0" code_is 0
        run trial-$trial $ranks "${steps[@]}"
    else
        note "trial $trial: $said"
        finish_started
    fi
    check "trial $trial, $ranks ranks: it ends with 0" code_is 0
    check "every answer is one of the contract's" not_odd
    check "the bits of the run that nobody disturbed" same_steps whole-$ranks trial-$trial
    check "every checkpoint verifies" all_verify trial-$trial
    check "nothing is left behind" [ ! -e "$socket" ]
    rm -rf "trial-$trial"
done
tests_end
