#!/usr/bin/env bash
# Whatever a loss of power leaves of a run with saves, retention and exports, the old or the new loads: every state that the
# calls of three runs, one of them killed, could leave, rebuilt by tests/support/crash_states.py. usage: test_crash_states.sh ZEROD SOURCE CALLS LOADS
# [--large] [SETTING...]: of the job, as for --set. --large: one rank, none is killed, and its shard of more than 8 MiB goes past the
# page cache; of single calls missing there are ten after each.
calls=$(realpath "$3") loads=$(realpath "$4")
source=$(realpath "$2")
. "$(dirname "$0")/lib.sh"
shift 4
python3 -B "$source/tests/support/tiny.py" .
ranks=2 large=
if [ "${1:-}" = --large ]; then
    ranks=1 large=yes
    sed -i 's/^vocab_size = .*/vocab_size = 23000/' job.toml
    shift
fi
sets=()
for each in "$@"; do sets+=(--set "$each"); done
# steps COUNT [VARIABLE...]: of calls.c
steps() {
    local count=$1 more=() each
    shift
    for each in "$@"; do more+=(-x "$each"); done
    timeout -k 5 100 mpirun --oversubscribe -np $ranks -x LD_PRELOAD="$calls" -x ZEROD_TEST_TRACE="$work/trace:/folder/out" "${more[@]}" \
        "$zerod" --job job.toml --set job.output_dir=folder/out --set train.max_steps="$count" --set checkpoint.save_steps=1 \
        --set checkpoint.save_total_limit=1 "${sets[@]}" >out 2>err
}
bail_out() { cat err; echo "Bail out! $1"; exit 1; }
steps 2 || bail_out 'the run failed'
# one that is killed while it writes its second save, after which the next start cleans up
code=0
[ -n "$large" ] || steps 4 ZEROD_TEST_RANK=1 ZEROD_TEST_REFUSE=fsync:shard-:-9:2 || code=$?
[ -n "$large" ] || [ "$code" -eq 137 ] || bail_out "the run that is killed ended with $code"
steps 4 || bail_out 'the run failed'
python3 "$source/tests/support/crash_states.py" trace folder/out "$loads" ${STATES:-${large:+200}} ${large:+shard- 10}
