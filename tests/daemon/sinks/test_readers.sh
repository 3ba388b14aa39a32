#!/usr/bin/env bash
# What the sinks write, read by Prometheus' promtool and by readers that know the formats alone. The alerts of deploy/, tried
# by promtool.
#   test_readers.sh EXAMPLE SOURCE      prints TAP
example=$1 source=$2
count=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
tell() { # CODE NAME
    count=$((count + 1))
    if [[ $1 -eq 0 ]]; then echo "ok $count - $2"; else echo "not ok $count - $2"; fi
}
skip() { # NAME WHY
    count=$((count + 1))
    echo "ok $count - $1 # SKIP $2"
}
shown() { # the output of a command that failed, as comments
    sed 's/^/# /' "$dir/out"
}

"$example" "$dir" 2>"$dir/out"
code=$?
[[ $code -eq 0 ]] || shown
tell $code "the example is written"

for what in dashboard alerts docs; do
    python3 -I "$source/tests/daemon/sinks/names.py" "$dir/metrics.txt" "$what" "$source" >"$dir/out" 2>&1
    code=$?
    [[ $code -eq 0 ]] || shown
    tell $code "$what: metrics and labels are those of the program"
done

for text in metrics.txt text/zerod_tiny.prom; do
    name="promtool has no complaint about $text"
    if ! command -v promtool >/dev/null; then skip "$name" "no promtool"; continue; fi
    promtool check metrics <"$dir/$text" >"$dir/out" 2>&1 && [[ ! -s $dir/out ]]
    code=$?
    [[ $code -eq 0 ]] || shown
    tell $code "$name"
done

for check in "check rules deploy/prometheus/zerod.rules.yml" "test rules deploy/prometheus/zerod.test.yml"; do
    name="promtool $check"
    if ! command -v promtool >/dev/null; then skip "$name" "no promtool"; continue; fi
    # shellcheck disable=SC2086
    (cd "$source" && promtool $check) >"$dir/out" 2>&1
    code=$?
    [[ $code -eq 0 ]] || shown
    tell $code "$name"
done

python3 -I "$source/tests/daemon/sinks/read_events.py" "$dir/tensorboard" >"$dir/found" 2>"$dir/out" &&
    diff <(sort "$dir/expected") <(sort "$dir/found") >>"$dir/out"
code=$?
[[ $code -eq 0 ]] || shown
tell $code "TensorBoard's files have every number and text, and none that was undone"
echo "1..$count"
