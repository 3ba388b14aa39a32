#!/usr/bin/env bash
# Signals: USR1 and USR2 through mpirun, TERM and INT with and without it.
source "$(dirname "$0")/lib.sh" "$1" "$2"
long=(--set train.max_steps=1000000 --set log.logging_steps=1000 --set checkpoint.save_strategy=steps
    --set checkpoint.save_steps=900000)

start usr1 3 "${long[@]}"
wait_rows usr1 3
kill -USR1 "$pid"
finish_started
check "USR1 to mpirun: its code is 75" code_is 75
check "USR1 is no error" no_error
check "USR1 leaves one checkpoint, which verifies" all_verify usr1
stopped=$(rows usr1)
check "it holds all steps done" [ "$(newest usr1)" = "$(printf 'checkpoint-%06d' "$stopped")" ]
head -c "$(stat -c %s usr1/metrics.jsonl)" usr1/metrics.jsonl >before
run usr1 2 "${long[@]}" --set run.stop_after=$((stopped + 2))
check "the same command goes on from there, also on 2 ranks" code_is 0
check "the rows before are untouched, byte for byte" cmp -n "$(stat -c %s before)" before usr1/metrics.jsonl
check "every step has one row" diff <(column usr1 step) <(seq $((stopped + 2)))

start usr2 2 "${long[@]}"
wait_rows usr2 3
kill -USR2 "$pid"
tries=0
while [[ -z $(checkpoints usr2) && $tries -lt 3000 ]]; do sleep 0.05; tries=$((tries + 1)); done
saved=$(newest usr2) at=$(rows usr2)
check "USR2 saves" verifies "usr2/$saved"
wait_rows usr2 $((at + 3))
check "and goes on" [ "$(rows usr2)" -ge $((at + 3)) ]
kill -USR1 "$pid"
finish_started
check "USR1 ends it with 75" code_is 75
# The whole time of a save that training waits for is its stall.
beside() { grep '"event":"checkpoint"' "$1/events.jsonl" | head -1 | grep -v '"seconds":\([^,]*\),"stall_seconds":\1,'; }
check "USR2's was written while training went on" beside usr2

# mpirun kills its ranks a second after TERM. A machine that is too busy for a step and a save in half of that is given more.
seconds_it_has='1 10 30'
for seconds in $seconds_it_has; do
    rm -rf term
    OMPI_MCA_odls_base_sigkill_timeout=$seconds start term 2 "${long[@]}"
    wait_rows term 3
    kill -TERM "$pid"
    finish_started
    [[ -z $(checkpoints term) ]] || ! no_leftovers term >/dev/null || break
done
check "TERM to mpirun: it does not end in 0" [ "$code" -ne 0 ]
check "a small model is saved in the time there is" all_verify term
check "nothing half-written is left" no_leftovers term

# A model whose save might not end within mpirun's second: none is begun.
big=(--set zero.stage=1 --set train.per_device_train_batch_size=1 --set train.global_batch_size=2)
sed '/^\[model\]/,/^$/d' job.toml >big.toml
cat >>big.toml <<'END'
[model.config]
model_type = "llama"
hidden_size = 256
intermediate_size = 512
num_hidden_layers = 1
num_attention_heads = 4
num_key_value_heads = 4
vocab_size = 40000
max_position_embeddings = 64
tie_word_embeddings = false
END
cp job.toml small.toml && cp big.toml job.toml
# Here the ranks know of one second, however long it is until they are killed.
mkdir one-second
printf '#!/bin/sh\nOMPI_MCA_odls_base_sigkill_timeout=1 exec "%s" "$@"\n' "$zerod" >one-second/zerod
chmod +x one-second/zerod
for seconds in $seconds_it_has; do
    rm -rf cut
    PATH=$folder/one-second:$PATH OMPI_MCA_odls_base_sigkill_timeout=$seconds start cut 2 "${long[@]}" "${big[@]}"
    wait_rows cut 2
    kill -TERM "$pid"
    finish_started
    ! grep -qs USR1 cut.err cut/logs/rank-*.log || break
done
check "TERM to mpirun, a large model: it does not end in 0" [ "$code" -ne 0 ]
# Open MPI 5 may close the pipe of its ranks, or kill them, before the line is through; the rank's own log may have it.
if mpirun --version | grep -q "Open MPI) 5" && ! grep -qs USR1 cut.err cut/logs/rank-*.log; then
    skip "the log points to USR1" "Open MPI 5 left its ranks no time to say it"
else
    check "the log points to USR1" grep -qs USR1 cut.err cut/logs/rank-00000.log cut/logs/rank-00001.log
fi
check "no save was begun" [ -z "$(checkpoints cut)" ]
check "nothing half-written" no_leftovers cut
cp small.toml job.toml

for signal in TERM INT USR1; do
    start alone-$signal 0 "${long[@]}"
    wait_rows alone-$signal 3
    kill -$signal "$pid"
    finish_started
    check "$signal to one process without mpirun: 75" code_is 75
    check "$signal: and a checkpoint of every step done" \
        [ "$(newest alone-$signal)" = "$(printf 'checkpoint-%06d' "$(rows alone-$signal)")" ]
done
run wish 0 --set run.on_sigusr1=exit --set run.stop_after=1
check "on_sigusr1 = exit is accepted" code_is 0
tests_end
