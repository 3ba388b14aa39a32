#!/usr/bin/env bash
# Whatever a loss of power leaves of a run with saves, retention and exports, the old or the new loads: every state that the
# calls of two runs could leave, rebuilt by tests/support/crash_states.py. usage: test_crash_states.sh ZEROD SOURCE CALLS LOADS
# [SETTING...]: of the job, as for --set.
calls=$(realpath "$3") loads=$(realpath "$4")
source=$(realpath "$2")
. "$(dirname "$0")/lib.sh"
shift 4
python3 -B "$source/tests/support/tiny.py" .
sets=()
for each in "$@"; do sets+=(--set "$each"); done
for steps in 2 4; do
    if ! timeout -k 5 100 mpirun --oversubscribe -np 2 -x LD_PRELOAD="$calls" -x ZEROD_TEST_TRACE="$work/trace:/folder/out" \
        "$zerod" --job job.toml --set job.output_dir=folder/out --set train.max_steps=$steps --set checkpoint.save_steps=1 \
        --set checkpoint.save_total_limit=1 "${sets[@]}" >out 2>err; then
        cat err
        echo 'Bail out! the run failed'
        exit 1
    fi
done
python3 "$source/tests/support/crash_states.py" trace folder/out "$loads" ${STATES:-}
