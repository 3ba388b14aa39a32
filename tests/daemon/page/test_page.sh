#!/bin/bash
# The page of a real run: zerodctl web by curl, report.html, and a browser where there is one. TAP.
# usage: test_page.sh ZEROD ZERODCTL SOURCE_ROOT
zerod=$(readlink -f "$1") ctl=$(readlink -f "$2") root=$(readlink -f "$3")
. "$root/tests/support/tap.sh"
command -v curl >/dev/null || { echo "1..0 # SKIP curl is not installed"; exit 0; }
scratch_folder
cd "$work" || exit 99
ln -s "$root/tests" tests
unset SSH_CONNECTION
export OMP_NUM_THREADS=1

# until COMMAND...: again until it succeeds, for at most two minutes.
until_ok() {
    local tries=0
    until "$@" >/dev/null 2>&1; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt 1200 ] || return 1
    done
}
# code CURL_ARGUMENT...: the status of the answer.
code() { curl -s -m 100 -o /dev/null -w '%{http_code}' "$@"; }
is() { [ "$1" = "$2" ] || { echo "$1, not $2"; return 1; }; }
says() { grep -qF -- "$1" "$2" || { echo "no $1 in:"; head -c 2000 "$2"; return 1; }; }
holds() { curl -s -m 100 "$page$1" | grep -q "$2"; }

sed -e 's|^\[job\]|[job]\noutput_dir = "out"|' -e 's|^\[data\]|[data]\ncache_dir = "cache"|' \
    tests/fixtures/llama_odd/job.toml >job.toml
"$zerod" --job job.toml --max-steps 1000000 --set train.global_batch_size=4 --set data.val_split=0.05 \
    --set eval.eval_strategy=no --set checkpoint.save_strategy=no --set log.logging_steps=1000 >run.out 2>err &
run=$!
ok "a run answers" until_ok "$ctl" -j fixture-llama_odd ranks
"$ctl" -j fixture-llama_odd web >address 2>web.err &
web=$!
until_ok grep -q http address

page=$(sed 's|/$||' address)
ok "the address has a folder that no one can guess" grep -Eq '^http://127.0.0.1:[0-9]+/[0-9a-f]{64}/$' address
curl -s "$page/" >page.html
ok "the page is the one in the program" cmp page.html "$root/daemon/page/page.html"
ok "the job tells its state through the relay" holds /v1/status '"state"'

# a stream goes on while it is read: three events, then the reader leaves
ok "events come as they happen" bash -c "curl -sN -m 100 '$page/v1/events' | grep -m 3 -c '^event: step'"
curl -s -d '{"learning_rate": "high"}' "$page/v1/set" >answer
ok "a wrong value comes back with code and message" says E_BAD_REQUEST answer

python=$(command -v python3) chromium=$(command -v chromium)
if [ -n "$python" ] && [ -n "$chromium" ]; then
    "$ctl" -j fixture-llama_odd web >address2 2>/dev/null &
    second=$!
    until_ok grep -q http address2
    ok "a browser draws, pauses and resumes" "$python" tests/daemon/page/browser.py live "$(cat address2)"
    kill -INT $second
    wait $second
    tell $? "Ctrl-C ends a relay with 0"
else
    skip "a browser draws, pauses and resumes" "chromium or python3 is not installed"
fi

ok "stop through the relay" is "$(code -d '{"wait": true}' "$page/v1/stop")" 200
wait $run
tell $? "the run ends with 0"
wait $web
tell $? "the relay ends with the job"
ok "and says so" says "has ended" web.err
ok "report.html is there" test -s out/report.html
ok "it has the run inside" says '<script id="zerod-data" type="application/json">{"status":' out/report.html
if [ -n "$python" ] && [ -n "$chromium" ]; then
    ok "a browser draws it" "$python" tests/daemon/page/browser.py report out/report.html
else
    skip "a browser draws it" "chromium or python3 is not installed"
fi
tests_end
