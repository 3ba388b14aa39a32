#!/usr/bin/env bash
# What a loss of power leaves of a run: the calls of a whole one, with retention and an export, judged by
# tests/support/power_loss.py. usage: test_power_loss.sh ZEROD SOURCE CALLS RANKS
calls=$(realpath "$3")
source=$(realpath "$2") ranks=$4
. "$(dirname "$0")/lib.sh"
. "$source/tests/support/small_job.sh"
small_job "$source/tests/fixtures"
launch=(mpirun --oversubscribe -np "$ranks" -x LD_PRELOAD="$calls" -x ZEROD_TEST_CALLS="$work/calls")
[ "$ranks" -gt 1 ] || launch=(env LD_PRELOAD="$calls" ZEROD_TEST_CALLS="$work/calls")
if ! timeout -k 5 100 "${launch[@]}" "$zerod" --job job.toml --set job.output_dir=new/folders/out --set train.max_steps=4 \
    --set checkpoint.save_steps=1 --set checkpoint.save_total_limit=1 --set model.dtype=bf16 >out 2>err; then
    cat err
    echo 'Bail out! the run failed'
    exit 1
fi
python3 "$source/tests/support/power_loss.py" calls new/folders/out
