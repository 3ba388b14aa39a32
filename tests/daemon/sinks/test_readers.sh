#!/usr/bin/env bash
# What the sinks write, read by Prometheus' promtool and by readers that know the formats alone. The alerts of deploy/, tried
# by promtool.
#   test_readers.sh EXAMPLE SOURCE      prints TAP
example=$(realpath "$1") source=$(realpath "$2")
. "$source/tests/support/tap.sh"
scratch_folder
dir=$work
cd "$dir" || exit 99
# promtool ARGUMENT...: without it, skipped
tool() {
    if command -v promtool >/dev/null; then ok "promtool $*" promtool "$@"; else skip "promtool $*" "no promtool"; fi
}
no_complaint() { ! promtool check metrics <"$1" 2>&1 | grep .; }

ok "the example is written" "$example" "$dir"
for what in dashboard alerts docs; do
    ok "$what: metrics and labels are those of the program" \
        python3 -I "$source/tests/daemon/sinks/names.py" metrics.txt "$what" "$source"
done
for text in metrics.txt text/zerod_tiny.prom; do
    name="promtool has no complaint about $text"
    if command -v promtool >/dev/null; then ok "$name" no_complaint $text; else skip "$name" "no promtool"; fi
done
tool check rules "$source/deploy/prometheus/zerod.rules.yml"
tool test rules "$source/deploy/prometheus/zerod.test.yml"

read_events() {
    python3 -I "$source/tests/daemon/sinks/read_events.py" tensorboard >found && diff <(sort expected) <(sort found)
}
ok "TensorBoard's files have every number and text, and none that was undone" read_events
tests_end
