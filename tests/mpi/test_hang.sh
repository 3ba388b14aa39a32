#!/usr/bin/env bash
# A rank that hangs is named, and all end soon; one that pauses is left alone.
#   test_hang.sh ZEROD SOURCE_ROOT CALLS [gpu]      gpu: ranks with a GPU each, on the stand-ins, that exchange through the host
source "$(dirname "$0")/lib.sh" "$1" "$2"
calls=$3
long=(--set train.max_steps=1000000 --set checkpoint.save_strategy=no --set eval.eval_strategy=no --set control.socket=none
    --set log.progress=none)

# steps NAME RANKS ROWS ARGUMENT...: started, and so many steps are made; $ranks are the processes.
steps() {
    together begin "$@"
    ranks=($(children "$pid"))
}
begin() {
    start "$1" "$2" "${@:4}"
    wait_rows "$1" "$3"
}
# hang NAME SIGNAL RANK ARGUMENT...: that rank of three gets the signal once steps are made; $seconds: until all have ended.
hang() {
    local signal=$2 rank=$3 began
    name=$1
    shift 3
    LD_PRELOAD=$calls steps "$name" 3 5 "${long[@]}" --set comm.timeout=3s "$@"
    began=$(date +%s%N)
    kill -"$signal" "${ranks[$rank]}"
    finish_started
    seconds=$((($(date +%s%N) - began) / 1000000000))
}
# One rank of the host says so; the seconds allow for a busy machine.
soon() { [[ $seconds -le $((17 + 3 * tries * tries)) ]] || { echo "it took $seconds s"; return 1; }; }
gone() { for each in "${ranks[@]}"; do lives "$each" && { echo "$each is left"; return 1; }; done; true; }
logged() { grep -q 'error.E0504.: rank 1 on .* hangs at step' "$name"/logs/rank-*.log; }
event() { grep -q "\"event\":\"hang\",\"step\":[0-9]*,\"rank\":$1,\"host\":\"$(hostname)\",\"operation\":\"[a-z]*" "$name/events.jsonl"; }
one_event() { [[ $(grep -c '"event":"hang"' "$name/events.jsonl") -eq 1 ]]; }
ids_rise() { column_of_ids | sort -nc && [[ -z $(column_of_ids | uniq -d) ]]; }
column_of_ids() { sed -n 's/^{"id":\([0-9]*\),.*/\1/p' "$name/events.jsonl"; }

# What is told of rank 1 when it was stopped.
stopped_rank_is_told() {
    check "a rank that is stopped: 75, told once" fails_with 75 E0504
    check "  soon" soon
    check "  named, with its host and step" says "rank 1 on $(hostname) hangs at step [0-9]*: .*[a-z_]* #[0-9]*"
    check "  it is an event" event 1
    check "  and in the log of the rank that says so" logged
}

if [[ ${4:-} == gpu ]]; then
    source "$(dirname "$0")/gpu_lib.sh"
    python3 -B "$source_root/tests/support/tiny.py" .
    staged=("${settings[@]}" "${long[@]}" --set comm.backend=mpi --set train.global_batch_size=3 --set data.cutoff_len=8)
    hang stopped STOP 1 "${staged[@]}" --set zero.stage=3
    stopped_rank_is_told
    check "  nobody is left" gone
    tests_end
fi

hang stopped STOP 1
stopped_rank_is_told
check "  of one line" one_event
check "  nobody is left" gone

# The thread of rank 1 that writes the event is held up, as on a loaded machine.
ZEROD_TEST_RANK=1 ZEROD_TEST_DELAY=write:events.jsonl:2500:1 hang first STOP 0
check "rank 0 is stopped: 75, told once" fails_with 75 E0504
check "  named" says "rank 0 on $(hostname) hangs at step"
check "  another rank writes the event" event 0
check "  after the others" ids_rise
check "  nobody is left" gone

hang loops RTMIN 2
check "a rank in an endless loop of its own: 75, told once" fails_with 75 E0504
check "  named" says "rank 2 on $(hostname) hangs at step"
check "  it is an event" event 2

# Rank 0 is stopped before it has answered a first question: its watch is held up at its first datagram.
name=silent
LD_PRELOAD=$calls ZEROD_TEST_RANK=0 ZEROD_TEST_DELAY=recvfrom:socket:60000:1 ZEROD_TEST_REFUSE=write:.zerod:-19:2 \
    together run silent 2 "${long[@]}" --set comm.timeout=5s
check "a rank that is stopped and never answered: 75, told once" fails_with 75 E0504

# pause NAME SECONDS ARGUMENT...: rank 1 stands still for so long; the job goes on and is stopped by its own end.
pause() {
    local seconds=$2 rows
    name=$1
    shift 2
    steps "$name" 2 3 "${long[@]}" "$@"
    kill -STOP "${ranks[1]}"
    sleep "$seconds"
    kill -CONT "${ranks[1]}"
    rows=$(rows "$name")
    wait_rows "$name" $((rows + 3))
    check "$name: it goes on" [ "$(rows "$name")" -ge $((rows + 3)) ]
    kill -USR1 "$pid"
    finish_started
}
pause "a pause of 3 s" 3 --set comm.timeout=8s
check "  is not told" [ -z "$(grep 'may hang' "$name.err")" ]
check "  and ends as it is asked to" code_is 75
check "  which is no hang" no_error
# What status.json says while rank 1 stands still, and when it moves again.
steps stalled 2 3 "${long[@]}" --set comm.timeout=20s
says_state() { local tries; for ((tries = 0; tries < ${2:-200}; tries++)); do grep -q "\"state\": *\"$1\"" stalled/status.json && return; sleep 0.1; done; echo "no $1"; return 1; }
kill -STOP "${ranks[1]}"
check "a rank that stands still for three fifths of the limit: stalled" says_state stalled
check "  who and where" grep -q "\"stalled\": *{ *\"rank\": *1, *\"host\": *\"$(hostname)\"" <(tr -d '\n' <stalled/status.json)
kill -CONT "${ranks[1]}"
check "  running again when it moves" says_state running
kill -USR1 "$pid"
finish_started
check "  a warning says so" grep -q '"event":"warning".*rank 1 on .* may hang at step' stalled/events.jsonl
check "  which is no hang" no_error
pause "one of 12 s without a limit, which auto ends after 10" 12 --set comm.timeout=0s
check "  is no hang either" no_error

# A run that is paused for longer than a wait may take.
if command -v curl >/dev/null; then
    ask() { curl -sS --max-time 60 --unix-socket "$XDG_RUNTIME_DIR/zerod/fixture-llama_odd.sock" -d "$2" "http://zerod/v1/$1"; }
    steps paused 2 3 --set train.max_steps=1000000 --set checkpoint.save_strategy=no --set eval.eval_strategy=no --set log.progress=none \
        --set comm.timeout=3s
    ask pause '{"wait": true}' >paused.answer
    sleep 1 # its last row is written beside it
    held=$(rows paused)
    sleep 6
    check "a run that is paused for two limits stands still" [ "$(rows paused)" -eq "$held" ]
    ask resume '{"wait": true}' >>paused.answer
    wait_rows paused $((held + 3))
    kill -USR1 "$pid"
    finish_started
    check "  which is no hang: it goes on" [ "$(rows paused)" -ge $((held + 3)) ]
    check "  and ends as it is asked to" code_is 75
    check "  without an error" no_error
else
    skip "a run that is paused" "curl is not installed"
fi

# Rank 1 of two runs half of the time.
steps slow 2 2 --set train.max_steps=60 --set checkpoint.save_strategy=no --set checkpoint.export=none --set eval.eval_strategy=no \
    --set control.socket=none --set log.progress=none --set comm.timeout=6s
while [[ -d /proc/$pid && $(rows slow) -lt 60 ]] && kill -STOP "${ranks[1]}" 2>/dev/null; do
    sleep 0.06
    kill -CONT "${ranks[1]}" 2>/dev/null
    sleep 0.06
done
finish_started
check "a rank at half speed is no hang" code_is 0

# Whoever started the ranks is gone: those that run end, and with them the one that stands still.
name=orphans
mpirun -np 3 sh -c 'exec "$@" 2>"orphans-$OMPI_COMM_WORLD_RANK.err"' sh zerod --job job.toml --set job.output_dir=orphans "${long[@]}" \
    >orphans.out 2>orphans.err &
pid=$!
wait_rows orphans 3
ranks=($(children "$pid"))
segments=($(sed -n 's|.* \(/dev/shm/[a-z]*_segment[^ ]*\).*|\1|p' /proc/"${ranks[0]}"/maps | sort -u))
kill -STOP "${ranks[1]}"
kill -KILL "$pid"
for ((tries = 0; tries < 100; tries++)); do gone >/dev/null && break; sleep 0.1; done
check "ranks whose mpirun was killed end, a stopped one too" gone
check "  and one says so" [ "$(cat orphans-*.err | grep -c "^error.E0506.: the program that started rank [0-9] on $(hostname) is gone")" -eq 1 ]
swept() { for each in "${segments[@]}"; do [[ ! -e $each ]] || { echo "$each is left"; return 1; }; done; }
sleep 2 # what is younger may still be mapped
run again 2 --set train.max_steps=1 --set checkpoint.save_strategy=no --set checkpoint.export=none
check "  and the next start" code_is 0
check "  leaves nothing of them in /dev/shm" swept

# Rank 1 stands still when all is done, and rank 0 has left or is about to.
last() {
    limit=60 LD_PRELOAD=$calls ZEROD_TEST_RANK=1 run_with "$2" "$1" 2 --set train.max_steps=2 --set checkpoint.save_strategy=no \
        --set checkpoint.export=none --set control.socket=none --set log.progress=none --set comm.timeout=4s
}
run_with() { local -x "${1?}"; shift; together run "$@"; }
last stays_within ZEROD_TEST_REFUSE=finalize:MPI:0
check "a rank that stands still in the ranks' end: 75, told once" fails_with 75 E0504
check "  by itself" says "rank 1 on $(hostname) hangs at step [0-9]*: the ranks' end"

# A rank that never comes: MPI itself would wait for it for ever.
name=absent code=0
# One command for both: mpirun of Open MPI 5.0.7 (Debian 13) crashes wherever it is given two programs.
timeout -k 5 100 mpirun -np 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exec sleep 1000; exec "$@"' sh zerod --job job.toml \
    --set job.output_dir=absent --set comm.timeout=3s >absent.out 2>absent.err || code=$?
check "a rank that does not come: 75, told once" fails_with 75 E0505
check "  in its words" says "the ranks have not come together after [0-9.]* s (comm.timeout)"
tests_end
