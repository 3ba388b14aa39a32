#!/usr/bin/env bash
# A full disk: a save that fails is reported and survived, the last one is 74, and what was committed stays.
source "$(dirname "$0")/lib.sh" "$1" "$2"
limit_files=$3
steps=(--set train.max_steps=8 --set checkpoint.save_total_limit=0 --set checkpoint.export=none --set log.rank_logs=none)

# A file may not grow beyond 400 KiB: the shard of one rank wants 900.
run limited 0 "${steps[@]}" --set run.stop_after=2 --set checkpoint.save_steps=2
check "a first checkpoint" code_is 0
cp -r limited limited-three
(ulimit -f 400; run limited 0 "${steps[@]}" --set run.stop_after=7 --set checkpoint.save_steps=5; exit "$code")
code=$?
name=limited
check "files that cannot grow: the save in between is reported" says "checkpoint at step 5 was not saved, training goes on"
check "the last one is an error, told once" fails_with 74
check "training went on" [ "$(rows limited)" -eq 7 ]
check "what was committed stays" all_verify limited
check "nothing half-written" no_leftovers limited
(ulimit -f 400; run limited-three 0 "${steps[@]}" --set checkpoint.save_steps=1; exit "$code")
code=$?
name=limited-three
check "three in a row: 74" code_is 74
check "  and that they were three" grep -q "the run ends: 3 saves in a row have failed" "$name.err"
# The save of step 5 fails at once, or beside step 6.
check "after the third, at most a step later" grep -qx '[56]' <(rows limited-three)
name=timed
(ulimit -f 400; run timed 0 "${steps[@]}" --set train.max_steps=100000 --set checkpoint.save_strategy=time --set checkpoint.save_every=0.5s; exit "$code")
code=$?
check "three in a row by time: 74" code_is 74
apart() { # the first failure and the last row are two intervals apart
    local first
    first=$(sed -n 's/.*checkpoint at step \([0-9]*\) .*/\1/p' timed.err | head -n 1)
    column timed time | awk -v first="$first" 'NR == first { began = $1 } { ended = $1 } END { exit !(began && ended - began > .9) }'
}
check "each an interval after the last" apart
name=limited
run limited 0 "${steps[@]}"
check "with room again it goes on and ends well" code_is 0
check "one row a step" diff <(column limited step) <(seq 8)

# Saves that training waits for, and why.
# waits NAME WHY ARGUMENT...
waits() {
    name=$1
    run "$name" 0 --set train.max_steps=4 --set checkpoint.save_steps=2 --set checkpoint.export=none "${@:3}"
    check "$name: the banner says that training waits for its saves, and why" says "saves  *training waits for them: $2"
    check "  and so do events" [ "$(grep '"event":"checkpoint"' "$name/events.jsonl" |
        grep -c '"seconds":\([0-9.e-]*\),"stall_seconds":\1,"write_seconds":\1[,}]')" -eq 2 ]
    check "  it ends well" code_is 0
}
mkdir nvme
waits on_disk "states are on disk (offload.optimizer)" --set offload.optimizer=nvme --set offload.nvme_path="$PWD/nvme"
waits no_room "checkpoint.snapshot_memory is too small" --set checkpoint.snapshot_memory=1KiB

# One rank alone cannot write: limited once MPI has started, whose own files are larger.
code=0 name=single
timeout -k 5 200 mpirun -np 2 -x LD_PRELOAD="$limit_files" -x ZEROD_TEST_FILE_KIB=400 -x ZEROD_TEST_FILE_RANK=1 \
    zerod --job job.toml --set job.output_dir=single "${steps[@]}" >single.out 2>single.err || code=$?
check "rank 1 alone cannot write: 74, told once" fails_with 74
check "no checkpoint" [ -z "$(checkpoints single)" ]
check "nothing half-written" no_leftovers single

# A real full disk.
mkdir disk
if [[ $(id -u) -ne 0 ]] || ! unshare -m mount -t tmpfs -o size=64k none disk 2>/dev/null; then
    skip "a full disk" "mounting a tmpfs of one's own needs root"
else
    cat >inside.sh <<END
mount -t tmpfs -o size=\$1 none disk && shift
"\$@"
code=\$?
ls -A disk/out
cp -r disk/out kept
exit \$code
END
    name=disk code=0
    timeout -k 5 200 unshare -m bash inside.sh 1200k mpirun -np 2 zerod --job job.toml --set job.output_dir=disk/out \
        "${steps[@]}" --set checkpoint.save_steps=4 >disk.out 2>disk.err || code=$?
    check "a full disk: 74 when the last save fails" fails_with 74 E0806
    check "a full disk: training went on to the end" [ "$(rows kept)" -eq 8 ]
    check "a full disk: the checkpoint before stands" verifies kept/checkpoint-000004
    check "a full disk: nothing half-written" no_leftovers kept
    rm -rf kept
    code=0
    timeout -k 5 200 unshare -m bash inside.sh 500k mpirun -np 2 zerod --job job.toml --set job.output_dir=disk/out \
        "${steps[@]}" --set checkpoint.save_steps=4 >disk.out 2>disk.err || code=$?
    check "no room at all: the save in between is reported" says "checkpoint at step 4 was not saved"
    check "no room at all: 74" fails_with 74 E0806
    check "no room at all: no checkpoint" [ -z "$(checkpoints kept)" ]
fi
tests_end
