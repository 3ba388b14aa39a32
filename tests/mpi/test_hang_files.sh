#!/usr/bin/env bash
# A save, load or export of which no read, write or fsync ends is given up: 74, and what was committed stands.
#   test_hang_files.sh ZEROD SOURCE_ROOT CALLS
source "$(dirname "$0")/lib.sh" "$1" "$2"
export LD_PRELOAD=$3 ZEROD_TEST_RANK=1
job=(--set train.max_steps=8 --set checkpoint.save_steps=4 --set eval.eval_strategy=no --set control.socket=none --set log.progress=none)
limited=(--set checkpoint.timeout=2s) # where a call hangs: a loaded disk may take longer

# hangs NAME WHAT RULE ARGUMENT...: checkpoint 4 is there; a start in which that call of rank 1 never returns, then one without.
hangs() {
    local what=$2 rule=$3
    name=$1
    shift 3
    run "$name" 2 "${job[@]}" "$@" --set run.stop_after=4
    check "$name: a run that saves" code_is 0
    ZEROD_TEST_REFUSE=$rule run "$name" 2 "${job[@]}" "${limited[@]}" "$@"
    check "  one of which nothing ends is given up: 74, told once" fails_with 74 E0816
    check "  named" says "the $what of rank 1 on $(hostname) at step [0-9]* is given up: no read, write or fsync of it was done for 2.0 s"
    check "  an event" grep -q "\"event\":\"hang\",\"step\":[0-9]*,\"rank\":1,\"host\":\"$(hostname)\",\"operation\":\"$what\"" "$name/events.jsonl"
    check "  what was committed stands" all_verify "$name"
    run "$name" 2 "${job[@]}" "$@"
    check "  and the next start goes on" says 'resum'
    check "  to the end" code_is 0
}
hangs "a save beside training" save fsync:/.tmp-checkpoint:0
hangs "a save that training waits for" save write:/.tmp-checkpoint:0 --set checkpoint.async_save=false
hangs "a load" load pread:/checkpoint-:0
hangs "an export" export fsync:/hf.tmp:0

# A disk that takes no row of rank 0 holds up no step: all are made, and then the end waits for it.
name=rows
ZEROD_TEST_RANK=0 ZEROD_TEST_REFUSE=write:/metrics.jsonl:0 together run rows 2 "${job[@]}" "${limited[@]}" --set comm.timeout=3s
check "rows that a disk does not take: the checkpoint waits for them, 74" fails_with 74 E0816
check "  named" says "the save of rank 0 on $(hostname) at step [0-9]* is given up"
check "  after all steps" grep -q '"step": *8,' rows/status.json

# A save of which rank 1 alone fails is an event all the same, which rank 0 writes.
name=survived
ZEROD_TEST_REFUSE=fsync:/.tmp-checkpoint:5:1 run survived 2 "${job[@]}" --set checkpoint.export=none
check "a save that fails on rank 1 is survived" code_is 0
check "  an event says so" grep -q '"event":"warning".*checkpoint at step 4 was not saved, training goes on' survived/events.jsonl

# One process, whose disk never lets go of a save beside training: the end waits for it as long, and not for ever.
name=alone
limit=60 ZEROD_TEST_RANK=0 ZEROD_TEST_REFUSE=fsync:/.tmp-checkpoint:0 run alone 0 "${job[@]}" "${limited[@]}" --set train.max_steps=1000000 \
    --set checkpoint.save_strategy=time --set checkpoint.save_every=1s --set run.deadline=8s
check "a run of one process ends although its disk does not: 74" fails_with 74 E0816
check "  and training went on until then" says "the disk of $(hostname) holds up the save of step [0-9]*: .*; training goes on"
tests_end
