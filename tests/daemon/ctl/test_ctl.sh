#!/bin/sh
# zerodctl from outside, against the stub: which job, exit codes, what goes where. TAP.
# usage: test_ctl.sh ZERODCTL STUB SOURCE_ROOT
ctl=$(readlink -f "$1") stub=$(readlink -f "$2") root=$(readlink -f "$3")
answers=$root/tests/daemon/ctl/answers
. "$root/tests/support/tap.sh"
scratch_folder
dir=$work
cd "$dir" || exit 99
export XDG_RUNTIME_DIR="$dir/run" LC_ALL=C.UTF-8 TZ=UTC
unset COLUMNS LINES NO_COLOR
mkdir -m 700 run run/zerod
# Which job is meant where none is named: another job of this user would be one more.
if "$ctl" ls 2>/dev/null | sed 1d | grep -q .; then
    skip_all 'another job of this user runs on this machine'
fi

# play SOCKET MANNER: a stub that listens there; ends with the test, or by `unplay`.
play() {
    mkfifo "in-$tests.$$" "out-$tests.$$"
    "$stub" "$1" "$answers" "$2" <"in-$tests.$$" >"out-$tests.$$" &
    pid=$!
    exec 9>"in-$tests.$$"
    read -r _ready <"out-$tests.$$"
    rm -f "in-$tests.$$" "out-$tests.$$"
}
unplay() {
    exec 9>&-
    wait "$pid"
}
# told OK NAME [WHY]
told() {
    tell "$1" "$2"
    [ "$1" = 0 ] || { echo "# ${3:-}"; sed 's/^/# /' stdout stderr; }
}
# check NAME WANT_CODE TEXT COMMAND...: its exit code, what it says ('': anything); escape codes nowhere, one line begins
# with error unless the code is 0.
check() {
    name=$1 want=$2 text=$3
    shift 3
    timeout 100 "$ctl" "$@" >stdout 2>stderr </dev/null
    code=$?
    why=
    [ "$code" = "$want" ] || why="exit $code, not $want"
    errors=$(grep -c '^error' stderr)
    [ "$want" = 0 ] && wanted=0 || wanted=1
    [ "$errors" = "$wanted" ] || why="$why; $errors lines begin with error"
    if grep -q "$(printf '\033')" stdout stderr; then why="$why; escape codes"; fi
    grep -qF -e "$text" stdout stderr || [ -z "$text" ] || why="$why; it does not say: $text"
    [ -z "$why" ]; told $? "$name" "$why"
}
says() { grep -qF -e "$2" stdout stderr; told $? "$1" "it does not say: $2"; }

# --- none, one, several ---
check "no job is 66" 66 '' status
check "ls of none is a title" 0 NAME ls
check "no command is 64" 64 ''
check "an unknown command is 64" 64 '' dance
check "an option of another command is 64" 64 '' ls --now
check "three ways to name a job at once are 64" 64 '' status -j a -S b
check "a name with a slash is 64" 64 '' -j ../x status

play run/zerod/quickstart.sock plain
check "the only job is found" 0 "step 120 of 400" status
check "options may stand before the command" 0 '' -j quickstart status
check "by its socket" 0 '' status -S run/zerod/quickstart.sock
check "another name is 66" 66 "running: quickstart" status -j other
touch run/zerod/no-socket.sock
mkfifo run/zerod/fifo.sock
check "a file that is not a socket is not a job" 0 '' status
XDG_RUNTIME_DIR=/nowhere check "another folder has no job" 66 '' status

# --- each command that looks ---
check "ls" 0 quickstart ls
for command in "status -o json" "ls -o json" ranks "ranks -o json" memory \
    "logs" "logs --rank 0 -n 5" events "events --steps -o json" "events -n 2" samples "samples -o json" \
    metrics "metrics loss" "metrics loss eval/loss --csv" "metrics -o json" plot "plot learning_rate" config \
    "config optim" "config -o json" top; do
    check "$command" 0 '' $command
    [ -s stdout ]; told $? "$command prints something" "stdout is empty"
done
check "an unknown series is 64" 64 "no series" metrics lost
check "an unknown key is 64" 64 "without a name, all are listed" config optim.learning_rat
check "an unknown key beside a known one is 64" 64 '' config optim zzz
COLUMNS=70 check "config on a narrow screen" 0 ORIGIN config
[ "$(awk '{ if (length($0) > 72) n++ } END { print n + 0 }' stdout)" = 0 ]; told $? "and is cut" "$(wc -L <stdout) columns"
check "config in a pipe" 0 '"tie_word_embeddings": true}' config model.config
check "json of some keys" 0 '' config optim -o json
! grep -q '"train\.' stdout; told $? "has these alone" "$(cat stdout)"
check "csv" 0 '' metrics loss eval/loss --csv
head -1 stdout | grep -qx 'step,train/loss,eval/loss'; told $? "csv has its titles" "$(head -1 stdout)"
[ "$(wc -l <stdout)" = 121 ]; told $? "csv has a row for each step" "$(wc -l <stdout) lines"
grep -qx '120,2.2187,2.4' stdout; told $? "csv has the numbers as they are" "$(tail -1 stdout)"
check "json" 0 '' status -o json
grep -q '"step": 120' stdout; told $? "json is the object of the API" ""
check "events in a pipe" 0 '\x1b[2J' events
COLUMNS=40 check "40 columns" 0 '' status
[ "$(awk '{ if (length > m) m = length } END { print m }' stdout)" -le 130 ]; told $? "nothing is wider" ""

# --- each command that acts ---
for command in checkpoint eval "sample hello" sample pause resume "set learning_rate=1e-4" profile "profile 5" \
    "checkpoint --no-wait" "checkpoint -o json"; do
    check "$command" 0 '' $command
done
check "checkpoint" 0 "out/quickstart/checkpoint-000120" checkpoint
check "sample" 0 '\x1b[31m' sample hello
check "set" 0 "it warms up" set learning_rate=1e-4
says "a warning too" "warning: it rises"
check "set with and without a section" 0 '' set optim.learning_rate=1e-4 save_steps=5e1 train.gradient_accumulation_steps=2
grep -qF '{"learning_rate":0.0001' run/zerod/quickstart.sock.body && grep -qF '"save_steps":50,"gradient_accumulation_steps":2' run/zerod/quickstart.sock.body
told $? "whole numbers stay whole" "$(cat run/zerod/quickstart.sock.body)"
for wrong in learning_rate =3 learning_rate= learning_rate=nan learning_rate=1e-4x "lr=1 learning_rate=2"; do
    check "set $wrong is 64" 64 '' set $wrong
done
check "profile of no number is 64" 64 '' profile x
"$ctl" logs 2>/dev/null | head -1 >stdout; told $? "a reader that leaves early is not an error" ""

# --- broken jobs ---
unplay
for manner in close dribble; do
    play run/zerod/$manner.sock $manner
    check "$manner: the same answer" 0 '' status -j $manner
    unplay
done
for manner in cut deaf no-json garbage version-2 no-number minus letters huge endless ending; do
    play run/zerod/$manner.sock $manner
    check "$manner: 69" 69 '' status -j $manner
    case $manner in cut) says "broken off" "broke off" ;; deaf) says "closed" "closed" ;; no-json) says "no JSON" "not a JSON object" ;;
    ending) says "in its words" "the run is ending" ;; *) says "no HTTP" "not HTTP" ;; esac
    unplay
done
check "a path that is too long is 69" 69 '' status -S "/$(printf '%0300d' 0)"
play run/zerod/hang.sock hang
check "ls lists a job that does not answer" 0 "no answer" ls
check "a wait has its end" 69 "stays queued" eval --timeout 1s
: >stderr # what was said before would be taken for the waiter's word
"$ctl" eval >stdout 2>stderr &
waiter=$!
tries=0
until grep -q "waiting for" stderr || [ $tries -ge 1200 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -TERM $waiter # a shell has its children ignore INT
wait $waiter
[ $? = 143 ]; told $? "a signal ends it" ""
unplay
play run/zerod/readonly.sock readonly
check "a refused command is 77" 77 "control.readonly = true" pause
unplay
play run/zerod/busy.sock busy
check "a conflict is 69" 69 "already paused" eval
check "a pause that is too late is 69" 69 '' pause
unplay
play run/zerod/failing.sock failing
check "a command that failed is 69" 69 "no room for a checkpoint" checkpoint
unplay
play run/zerod/slow.sock slow
check "a slow command is waited for" 0 "Ctrl-C leaves the command" eval
unplay

# --- names that are none of a series ---
cp -r "$answers" names
answers=$dir/names
awk 'BEGIN { for (i = 0; i < 300; i++) { n = n s "\"s" i "\""; v = v s "\"s" i "\": {\"step\": [1], \"value\": [2]}"; s = ", " }
    print "{\"names\": [" n"], \"series\": {" v "}}" }' >names/history.json
play run/zerod/names.sock plain
check "300 series" 0 '' metrics --csv
[ "$(tail -1 stdout | tr ',' '\n' | wc -l)" = 301 ]; told $? "have a column each" "$(tail -1 stdout | head -c 80)"
unplay
answers=$root/tests/daemon/ctl/answers

# --- several, one of them stale ---
play run/zerod/one.sock plain
pid_one=$pid
exec 8>&9
play run/zerod/two.sock plain
check "several are 64" 64 "one, two" status
says "with what to type" "-j one"
check "one of several" 0 '' status -j two
ln run/zerod/one.sock kept
exec 8>&-
unplay
wait "$pid_one"
mv kept run/zerod/stale.sock
check "a stale socket is not a job" 66 '' status
check "a stale socket by name is 66" 66 '' status -j stale

# --- files ---
mkdir -p out/logs
sed 's/"pid": 4711,/"pid": 4711, "ranks": [{"rank": 0, "host": "node1", "step": 120, "memory": {"device": {"planned": 10, "taken": 5}}}], "memory": [{"rank": 0, "memory": [{"where": "device", "planned": 10, "taken": 5}], "resident": 7}],/' \
    "$answers/status.json" >out/status.json
echo '{"step": 0, "eval_loss": 9.5}' >out/metrics.jsonl
for step in 1 2 3; do echo "{\"step\": $step, \"loss\": $step.5, \"phase_seconds\": {\"data\": 0.5}}"; done >>out/metrics.jsonl
printf '{"step": 4, "lo' >>out/metrics.jsonl
sed -n 's/^data: //p' "$answers/events.txt" >out/events.jsonl
cp "$answers/log.txt" out/logs/rank-00000.log
for command in status ranks memory metrics "metrics loss --csv" plot logs "logs -n 2" events samples top; do
    check "--dir: $command" 0 "from out/status.json, written" $command --dir out
done
check "--dir: metrics" 0 '' metrics loss perf/data_wait --csv --dir out
grep -qx '3,3.5,0.5' stdout; told $? "--dir: rows of metrics.jsonl" "$(tail -1 stdout)"
check "--dir: an evaluation of step 0" 0 '' metrics eval/loss --csv --dir out
grep -qx '0,9.5' stdout; told $? "--dir: it is a row" "$(tail -1 stdout)"
cp out/metrics.jsonl metrics.was
{ printf '\n{"step": 4, "loss": 9, "x": ['; yes '{},' | head -n 1000000 | tr -d '\n'; echo '{}]}'; } >>out/metrics.jsonl
check "--dir: a row of a million values" 0 '' metrics loss --csv --dir out
! grep -q '^4,' stdout; told $? "--dir: it is not taken, for its memory" "$(tail -1 stdout)"
truncate -s 2G out/metrics.jsonl
check "--dir: metrics of 2 GiB" 65 '' metrics --dir out
mv metrics.was out/metrics.jsonl
mkfifo out/logs/rank-00001.log
check "--dir: a log that is a FIFO" 65 '' logs --rank 1 --dir out
check "--dir: a log that is not there" 66 '' logs --rank 2 --dir out
cp out/events.jsonl events.was
truncate -s 2G out/events.jsonl
check "--dir: events of 2 GiB" 0 '' status --dir out
check "--dir: samples in 2 GiB" 65 '' samples --dir out
mv events.was out/events.jsonl
check "--dir: logs" 0 '' logs -n 2 --dir out
[ "$(wc -l <stdout)" = 2 ]; told $? "--dir: the last two lines" ""
check "--dir: steps are not in the files of events" 66 '' events --steps --dir out
check "--dir: commands need the socket" 69 node1 pause --dir out
sed 's|"socket": "[^"]*"|"socket": null|' out/status.json >silent.json && cp out/status.json out/live.json && cp silent.json out/status.json
check "--dir: a job without a socket takes no command" 69 'control.socket = "none"' pause --dir out
cp out/live.json out/status.json
sed 's/"state": *"[a-z]*"/"state": "stopped"/' out/status.json >out/ended.json && cp out/status.json out/live.json && mv out/ended.json out/status.json
check "--dir: a run that has ended takes none" 66 "has ended" pause --dir out
# as_state STATE STOPPED_BY STALLED: status.json of a run in that state.
as_state() {
    sed "s/\"state\": *\"[a-z]*\"/\"state\": \"$1\"/; s/\"stopped_by\": null/\"stopped_by\": $2/; s/\"stalled\": null/\"stalled\": $3/" out/live.json >out/status.json
}
as_state stopped '"--stop-after"' null
check "--dir: a run that was stopped, watched once" 0 "stopped (--stop-after)" status -w --dir out
as_state stalled null '{"rank": 3, "host": "node2", "step": 121, "operation": "all_reduce #9", "since": 1795200030}'
check "--dir: a run that is stalled" 0 "stalled (rank 3)" status --dir out
says "where, and in what" "rank 3 on node2 at step 121: waited for in all_reduce #9 since"
check "--dir: top of it" 0 "stalled (rank 3)" top --dir out
echo '{"id": 999, "time": 1795200040, "event": "hang", "step": 121, "rank": 3, "host": "node2", "operation": "all_reduce #9", "seconds": 10.0}' >>out/events.jsonl
check "--dir: a run that a hang ended" 69 "the run failed after step 120: rank 3 on node2 hung in all_reduce #9 for 10s" status --dir out
says "in its state too" "failed (rank 3 hung)"
check "--dir: it takes no command" 66 '' pause --dir out
check "--dir: the events say so" 0 "rank 3 on node2: waited for in all_reduce #9" events --dir out
sed -i '$d' out/events.jsonl
as_state failed null null
check "--dir: a run that failed" 69 "the run failed after step 120" status --dir out
echo '{"start": "1795200000.5", "rank": 0, "step": 120, "how": "exit 79", "code": "E0620", "what": "the loss is not finite"}' >out/.zerod.starts
check "--dir: a run that ended with 79" 69 "the run failed after step 120: exit 79, E0620: the loss is not finite" status --dir out
says "and what that means" "would end the same way"
rm out/.zerod.starts
mv out/live.json out/status.json
check "--dir: config is not in the files" 66 '' config --dir out
check "--dir: no job's folder" 66 '' status --dir run
play sock plain
sed -i "s|/run/user/1000/zerod/quickstart.sock|$dir/sock|" out/status.json
check "--dir: the socket where it answers" 0 '' pause --dir out
unplay

# --- help ---
check "help" 0 '' --help
for group in "inspect a job:" "control it:"; do says "help has $group" "$group"; done
for verb in $("$ctl" --help | sed -n '/^inspect/,/^options/s/^  \([a-z]*\) .*/\1/p'); do
    check "help of $verb" 0 '' "$verb" --help
done
check "version" 0 '' --version
tests_end
