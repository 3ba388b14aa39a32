#!/usr/bin/env bash
# Resume with the real program: on other ranks, past broken checkpoints; what is refused, and how.
source "$(dirname "$0")/lib.sh" "$1" "$2"
steps=(--set train.max_steps=20 --set checkpoint.save_steps=3 --set checkpoint.save_total_limit=0)

run whole 2 "${steps[@]}"
check "the unbroken run" code_is 0
check "all of its checkpoints verify" all_verify whole

# Worlds and stages.
run mixed 3 "${steps[@]}" --set zero.stage=3 --set run.stop_after=7
cp mixed/metrics.jsonl before
run mixed 1 "${steps[@]}" --set zero.stage=0 --set run.stop_after=13
check "3 ranks, then 1" code_is 0
check "rows before are untouched, byte for byte" cmp -n "$(stat -c %s before)" before mixed/metrics.jsonl
run mixed 4 "${steps[@]}" --set zero.stage=2
check "then 4" code_is 0
check "3, 1 and 4 ranks: the losses of 2 unbroken" near whole mixed
check "one row a step" diff <(column mixed step) <(seq 20)

# The newest is broken: passed over, named, replaced.
cp -r whole copied
rm -r copied/checkpoint-000020 copied/hf
printf 'x' | dd of=copied/checkpoint-000018/shard-00002-of-00002.safetensors bs=1 seek=5000 conv=notrunc status=none
run copied 2 "${steps[@]}" --set run.stop_after=16
check "a broken newest checkpoint is passed over" code_is 0
check "and named" says "passing over copied/checkpoint-000018"
check "the rows after the one taken are dropped" [ "$(rows copied)" -eq 16 ]
run copied 2 "${steps[@]}"
check "a copied folder goes on" code_is 0
check "the broken one was replaced when that step came again" verifies copied/checkpoint-000018
check "the bits are the unbroken run's" same_run whole copied

# What run.resume asks for.
run whole 2 "${steps[@]}"
check "a finished run ends with 0" code_is 0
check "and says so" says "finished"
rm -r whole/hf
run whole 2 "${steps[@]}"
check "a finished run whose export was lost makes it again" same_run copied whole
run none 2 "${steps[@]}" --resume must
check "must with nothing there: 66" fails_with 66 E0801
cp -r whole anew
run anew 2 "${steps[@]}" --resume never
check "never with checkpoints there says what it replaces" says "begins anew at step 0: it replaces, in anew, checkpoint-0000"
check "and does: the bits of the first time" same_run whole anew
run from 2 "${steps[@]}" --resume whole/checkpoint-000009
check "PATH: from there, into another folder" code_is 0
check "PATH: the same model at the end" same_model copied from
run from2 2 "${steps[@]}" --resume whole/checkpoint-000010
check "PATH that is not there: 66, told once" fails_with 66
printf 'x' | dd of=from/checkpoint-000012/manifest.json bs=1 seek=9 conv=notrunc status=none
run from3 2 "${steps[@]}" --resume from/checkpoint-000012
check "PATH that does not verify: 65, told once" fails_with 65

# Two jobs, one folder.
start locked 2 --set train.max_steps=1000000 --set log.logging_steps=1000
wait_rows locked 1
first=$pid
mv locked.err locked-first.err
run locked 2 --set train.max_steps=1000000 --set job.name=another
check "a folder in use by another job: 73" fails_with 73 E0734
check "which goes on" [ -d "/proc/$first" ]
pid=$first
kill -USR1 "$pid"
finish_started
check "and was not disturbed" code_is 75
tests_end
