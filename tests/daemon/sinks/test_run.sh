#!/usr/bin/env bash
# The files a run leaves and the messages it sends, however it ends.
#   test_run.sh ZEROD NOTIFY_EAR SOURCE     prints TAP
zerod=$(readlink -f "$1") ear=$(readlink -f "$2") source=$3
. "$source/tests/support/tap.sh"
scratch_folder
dir=$work
export OMP_NUM_THREADS=1
mkdir "$dir/prom"
"$ear" "$dir/notify" >"$dir/told" &
# NAME [argument]...: a job of that name, in a folder of that name
run() {
    local name=$1
    shift
    (cd "$source" && echo "$BASHPID" >"$dir/$name.pid" && exec "$zerod" --job tests/train/bytes.toml --no-progress --set "job.name=$name" \
        --set "job.output_dir=$dir/$name" --set "report.prometheus_textfile=$dir/prom" "$@") >"$dir/$name.log" 2>&1
}
says() { # NAME KEY VALUE: status.json has it
    grep -q "^  \"$2\": $3,\$" "$dir/$1/status.json" 2>/dev/null && return 0
    echo "# $2 is not $3"
    sed 's/^/# /' "$dir/$1.log"
    return 1
}
wait_until() { # SECONDS command...
    local left=$(($1 * 20))
    shift
    until "$@"; do
        left=$((left - 1))
        [[ $left -gt 0 ]] || return 1
        sleep 0.05
    done
}
is_told() {
    grep -q "^$1" "$dir/told"
}

wait_until 100 test -S "$dir/notify"
export NOTIFY_SOCKET=$dir/notify
run done --set train.max_steps=4 --set log.logging_steps=1 --set checkpoint.save_steps=2
code=$?
unset NOTIFY_SOCKET
says done state '"done"' && says done step 4 && [[ $code -eq 0 ]]
tell $? "status.json of a run that ends says done, at its last step"
[[ -s $(echo "$dir"/done/tensorboard/events.out.tfevents.*) ]]
tell $? "TensorBoard's file is there"
grep -q 'id="zerod-data" type="application/json">{' "$dir/done/report.html"
tell $? "report.html has the numbers in it"
grep -q '^zerod_job_state{zerod_job="done",state="done"} 1$' "$dir/prom/zerod_done.prom" &&
    grep -q '^zerod_train_steps_total{zerod_job="done"} 4$' "$dir/prom/zerod_done.prom"
tell $? "the text file for Prometheus says done, at the last step"
# saved beside training, and at the end
python3 -I - "$dir/done/events.jsonl" "$dir/prom/zerod_done.prom" <<'END'
import json, re, sys
saves = [event for event in map(json.loads, open(sys.argv[1])) if event["event"] == "checkpoint"]
text = open(sys.argv[2]).read()
told = {"duration_seconds_sum": "seconds", "stall_seconds_total": "stall_seconds", "write_seconds_total": "write_seconds"}
told = {key: (float(re.search(rf"^zerod_checkpoint_{name}{{.*}} (.*)$", text, re.M)[1]), sum(each[key] for each in saves))
        for name, key in told.items()}
print("#", len(saves), told)
sys.exit(not (len(saves) == 2 and all(abs(a - b) < 1e-6 and a > 0 for a, b in told.values())))
END
tell $? "and of checkpoints what their events say"
wait_until 100 is_told STATUS=done
ready=$(grep -n '^READY=1' "$dir/told" | cut -d : -f 1)
stopping=$(grep -n '^STOPPING=1' "$dir/told" | cut -d : -f 1)
[[ -n $ready && -n $stopping && $ready -lt $stopping ]]
code=$?
[[ $code -eq 0 ]] || sed 's/^/# /' "$dir/told"
tell $code "systemd is told READY, then STOPPING, once each"

# Steps 1 to 5, then, as after a kill, from checkpoint 2 on: steps 3 to 5 are repeated.
again() {
    run again --set train.max_steps=6 --set checkpoint.save_steps=2 --set data.val_split=0.2 --set eval.eval_steps=1 \
        --set sample.steps=1 --set 'sample.prompts=["The "]' --set sample.max_new_tokens=4 "$@"
}
again --stop-after 5
rm -r "$dir"/again/checkpoint-00000[45]
again
code=$?
python3 -I - "$dir/again/report.html" <<'END'
import json, sys
html = open(sys.argv[1]).read()
begin = html.index('id="zerod-data" type="application/json">')
report = json.loads(html[html.index('{', begin):html.index('</script>', begin)])
steps = list(range(1, 7))
series, events = report['history']['series'], report['events']
of = lambda kind: [e for e in events if e['event'] == kind]
checks = {
    'losses': (series['train/loss']['step'], steps),
    'evaluations': (series['eval/loss']['step'], [0] + steps),
    'samples': ([s['step'] for s in report['samples']], steps[::-1]),
    'events of samples': ([e['step'] for e in of('sample')], steps),
    'events of evaluations': ([e['step'] for e in of('eval')], [0] + steps),
    'events of checkpoints': ([e['step'] for e in of('checkpoint')], [2, 4, 6]),
    'resumes': ([e['step'] for e in of('resumed')], [2]),
    'the ends of both processes': ([e['state'] for e in of('state') if e['state'] in ('stopped', 'done')], ['stopped', 'done']),
}
for name, (got, wanted) in checks.items():
    if got != wanted:
        print('#', name, got, 'not', wanted)
# of the steps that were made twice the second time counts
resumed = of('resumed')[0]['time']
late = [s['step'] for s in report['samples'] if s['time'] > resumed]
if late != [6, 5, 4, 3]:
    print('# samples after the resume', late)
sys.exit(late != [6, 5, 4, 3] or any(got != wanted for got, wanted in checks.values()))
END
[[ $? -eq 0 && $code -eq 0 ]]
tell $? "report.html of a run that was resumed has what was before, each step once, and the resume"

run plain --set report.tensorboard=false --set report.html=false --set report.prometheus_textfile=
[[ -s $dir/plain/status.json && ! -e $dir/plain/tensorboard && ! -e $dir/plain/report.html ]]
tell $? "what [report] switches off is not written"

run killed --set train.max_steps=1000000 --set checkpoint.save_strategy=no --set run.on_sigterm=exit &
pid=$!
wait_until 100 grep -qs '"step": [1-9]' "$dir/killed/status.json"
kill -TERM "$(cat "$dir/killed.pid")"
wait $pid
code=$?
says killed state '"stopped"' && [[ $code -eq 75 && -z $(ls -d "$dir"/killed/checkpoint-* 2>/dev/null) ]]
tell $? "status.json of a run that TERM ended without a checkpoint says stopped"

run failed --set train.max_steps=1000 --set optim.learning_rate=1e6 --set train.dtype=fp16 --set guard.nan=stop
code=$?
says failed state '"failed"' && [[ $code -eq 79 ]]
tell $? "status.json of a run that diverged says failed"
grep -q '^zerod_train_loss{zerod_job="failed"} NaN$' "$dir/prom/zerod_failed.prom"
tell $? ".. and its metrics have the loss that was not finite"
tests_end
