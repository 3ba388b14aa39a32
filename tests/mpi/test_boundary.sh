#!/usr/bin/env bash
# A job under mpirun that is asked things over its socket: all ranks act at one step boundary.
source "$(dirname "$0")/lib.sh" "$1" "$2"
command -v curl >/dev/null || skip_all "curl is not installed"
long=(--set train.max_steps=1000000 --set log.logging_steps=1000 --set checkpoint.save_strategy=no --set optim.warmup_steps=0)
socket=$XDG_RUNTIME_DIR/zerod/fixture-llama_odd.sock

ask() { # PATH [BODY]: the answer
    curl -sS --max-time 60 --unix-socket "$socket" ${2:+-d "$2"} "http://zerod/v1/$1"
}
says() { # PATTERN PATH [BODY]
    local answer
    answer=$(ask "$2" "${3:-}")
    grep -qE "$1" <<<"$answer" || { echo "$answer"; return 1; }
}

start asked 3 "${long[@]}"
wait_rows asked 3
check "pause waits until all ranks hold" says '"done": ?true' pause '{"wait": true}'
check "the job says that it is paused" says '"state": ?"paused"' status
held=$(rows asked)
check "a checkpoint is made in the pause" says '"path": ?".*checkpoint-' checkpoint '{"wait": true}'
check "which verifies, of the step that it holds at" verifies "asked/$(printf 'checkpoint-%06d' "$held")"
check "a setting is set in the pause" says '"learning_rate": ?0.001[,}]' set '{"learning_rate": 0.001, "wait": true}'
check "pause while paused is refused" says 'E_CONFLICT' pause '{"wait": true}'
check "no step was made meanwhile" [ "$(rows asked)" -eq "$held" ]
check "resume" says '"done": ?true' resume '{"wait": true}'
wait_rows asked $((held + 3))
check "the next step has the rate that was set" \
    [ "$(column asked learning_rate | sed -n $((held + 1))p)" = 0.001 ]
check "stop" says '"path": ?".*checkpoint-' stop '{"wait": true}'
finish_started
check "mpirun ends with 0" code_is 0
check "the socket is gone" [ ! -e "$socket" ]
check "the checkpoints verify" all_verify asked
stopped=$(rows asked)
check "the last one holds all steps done" [ "$(newest asked)" = "$(printf 'checkpoint-%06d' "$stopped")" ]
run asked 2 "${long[@]}" --set run.stop_after=$((stopped + 2))
check "the same command goes on from there, also on 2 ranks" code_is 0
check "every step has one row" diff <(column asked step) <(seq $((stopped + 2)))

start held 2 "${long[@]}"
wait_rows held 3
check "pause" says '"done": ?true' pause '{"wait": true}'
kill -USR1 "$pid"
finish_started
check "USR1 to a paused job: 75" code_is 75
check "with a checkpoint that verifies" all_verify held
tests_end
