#!/usr/bin/env bash
# kill -9 at random moments while checkpoints are written as fast as they can be: whatever was committed verifies, and the
# curve goes on as if nothing had happened. TRIES and SEED may be set.
source "$(dirname "$0")/lib.sh" "$1" "$2"
tries=${TRIES:-30}
limit=600 # 400 steps, most of which are saved: three minutes on a machine that does other things too
RANDOM=${SEED:-$(date +%s)}
note "SEED=$RANDOM"
steps=(--set train.max_steps=400 --set checkpoint.save_steps=1 --set checkpoint.save_total_limit=2
    --set checkpoint.export=none --set log.logging_steps=1000)
run whole 2 "${steps[@]}" --set checkpoint.save_steps=400
check "the unbroken run" code_is 0
for ((try = 1; try <= tries; try++)); do
    before=$(rows killed)
    start killed 2 "${steps[@]}"
    wait_rows killed $((before + 1))
    wait_commit killed
    sleep "0.$(printf '%03d' $((RANDOM % 300)))"
    victims=($(children "$pid") "$pid")
    kill -KILL "${victims[RANDOM % ${#victims[@]}]}" 2>/dev/null
    finish_started
    # mpirun itself may have been the one: its ranks follow by themselves, and rank 0 holds a lock until then
    flock -w 100 killed/.zerod.lock true
    check "try $try: after $(rows killed) steps, $(checkpoints killed | wc -l) checkpoints: all verify" all_verify killed
    [[ $(rows killed) -lt 390 ]] || break
done
run killed 2 "${steps[@]}"
check "the last start ends well" code_is 0
check "with the unbroken run's bits" same_curve whole killed
check "leaving nothing behind" no_leftovers killed
tests_end
