#!/usr/bin/env bash
# kill -9 in the middle of steps whose states and parameters stream through a file or, every other time, lie on the host:
# what was committed verifies, the curve is that of a run that was neither offloaded nor killed, and nothing is left in the
# file's folder. TRIES and SEED may be set.
source "$(dirname "$0")/lib.sh" "$1" "$2"
tries=${TRIES:-4}
RANDOM=${SEED:-$(date +%s)}
note "SEED=$RANDOM"
mkdir disk
steps=(--set train.max_steps=60 --set zero.stage=3 --set checkpoint.save_steps=4 --set checkpoint.save_total_limit=2
    --set checkpoint.export=none --set log.logging_steps=1000)
offload=(--set offload.optimizer=nvme --set offload.params=nvme --set offload.nvme_path=disk
    --set offload.chunk_bytes=4096 --set offload.threads=2)
host=(--set offload.optimizer=cpu --set offload.params=cpu --set offload.threads=2)
run whole 2 "${steps[@]}" --set checkpoint.save_steps=60
check "the unbroken run on the device" code_is 0
for ((try = 1; try <= tries; try++)); do
    before=$(rows killed)
    tier=("${offload[@]}")
    ((try % 2)) || tier=("${host[@]}")
    start killed 2 "${steps[@]}" "${tier[@]}"
    wait_rows killed $((before + 1))
    sleep "0.$(printf '%03d' $((RANDOM % 300)))"
    victims=($(children "$pid") "$pid")
    kill -KILL "${victims[RANDOM % ${#victims[@]}]}" 2>/dev/null
    finish_started
    flock -w 100 killed/.zerod.lock true # as in test_kill.sh
    if [[ -n $(newest killed) ]]; then
        check "try $try: after $(rows killed) steps: all checkpoints verify" all_verify killed
    fi
    [[ $(rows killed) -lt 55 ]] || break
done
run killed 2 "${steps[@]}" "${offload[@]}"
check "the last start ends well" code_is 0
check "with the bits of the run on the device" same_curve whole killed
check "leaving nothing behind" no_leftovers killed
is_empty() { [[ -z $(ls -A "$1") ]] || { ls -A "$1"; return 1; }; }
check "nor in the file's folder" is_empty disk
tests_end
