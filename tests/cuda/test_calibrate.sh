#!/usr/bin/env bash
# `zerod bench calibrate` on GPUs: one rank, then two that share one; what is measured of matmuls, updates, copies and the
# wire, and a plan by it.
#   test_calibrate.sh ZEROD SOURCE_ROOT
zerod=$(realpath "$1")
# shellcheck source=tests/support/tap.sh
. "$2/tests/support/tap.sh"
scratch_folder
cd "$work" || exit 99
export XDG_CACHE_HOME=$work/cache OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cat >job.toml <<'END'
schema = 1
[model.config]
model_type = "llama"
hidden_size = 64
num_hidden_layers = 2
num_attention_heads = 4
intermediate_size = 256
vocab_size = 4096
max_position_embeddings = 64
[data]
cutoff_len = 32
[[data.train]]
path = "tokens.bin"
format = "nanogpt"
[train]
max_steps = 3
dtype = "bf16"
[device]
backend = "cuda"
END
head -c 65536 /dev/zero >tokens.bin

# measured RANKS: every rate is a number above 0, and the wire's where there is one
measured() {
    python3 -I - "$1" <<'END'
import json, math, sys
table = json.load(open("out"))
assert table["backend"] == "cuda" and table["ranks"] == int(sys.argv[1]), table
assert table["wire_measured"] == (table["ranks"] > 1), table
assert all(math.isfinite(value) and (value > 0 or key.startswith("half") or key.endswith("_cores")) for key, value in table["machine"].items()), table["machine"]
END
}
"$zerod" bench calibrate --seconds 0.1 --json >out 2>err
tell $? "one rank calibrates its GPU"
ok "all of it is measured" measured 1
"$zerod" plan --job job.toml --world 1 >out 2>err && grep -q ' on here, as measured$' out
tell $? "a plan is by that"
mpirun --oversubscribe --bind-to none -np 2 "$zerod" bench calibrate --seconds 0.1 --json >out 2>err
tell $? "two ranks calibrate, with the wire"
ok "all of it is measured" measured 2
"$zerod" plan --job job.toml --world 2 --machine here >out 2>err && grep -q ' on here, as measured$' out
tell $? "a plan of two is by that"
tests_end
