#!/usr/bin/env bash
# Whatever a loss of power leaves of a run with saves, retention and exports, the old or the new loads: every state that the
# calls of two runs could leave, rebuilt by tests/support/crash_states.py. usage: test_crash_states.sh ZEROD SOURCE CALLS LOADS
# [SETTING...]: of the job, as for --set.
calls=$(realpath "$3") loads=$(realpath "$4")
source=$(realpath "$2")
. "$(dirname "$0")/lib.sh"
shift 4
seq 1 60 | sed 's/^/The miller kept the accounts of the mill, line /' >data.txt
cat >job.toml <<'TOML'
[model.config]
model_type = "llama"
hidden_size = 16
intermediate_size = 32
num_hidden_layers = 1
num_attention_heads = 2
vocab_size = 257
max_position_embeddings = 32
[data]
cutoff_len = 16
cache_dir = "cache"
[[data.train]]
path = "data.txt"
[train]
dtype = "fp32"
[checkpoint]
save_steps = 1
save_total_limit = 1
[device]
cpu_threads = 1
TOML
sets=()
for each in "$@"; do sets+=(--set "$each"); done
for steps in 2 4; do
    if ! timeout -k 5 100 mpirun --oversubscribe -np 2 -x LD_PRELOAD="$calls" -x ZEROD_TEST_TRACE="$work/trace:/folder/out" \
        "$zerod" --job job.toml --set job.output_dir=folder/out --set train.max_steps=$steps "${sets[@]}" >out 2>err; then
        cat err
        echo 'Bail out! the run failed'
        exit 1
    fi
done
python3 "$source/tests/support/crash_states.py" trace folder/out "$loads" ${STATES:-}
