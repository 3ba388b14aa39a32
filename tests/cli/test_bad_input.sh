#!/usr/bin/env bash
# Broken input and settings that cannot be: each row of bad/TABLE.txt ends with one error, before anything is written.
# usage: test_bad_input.sh ZEROD SOURCE ZERODCTL TABLE
. "$(dirname "$0")/bad_input.sh"

# --- functions in place of row ---
# damage: the checkpoint `c` after SETUP, as verify, export and a resuming run see it
damage() {
    local setup="cp -r $c c; $4"
    row "verify: $1" "$2" "$3" "$setup" ckpt verify c
    row "export: $1" "$2" "$3" "$setup" export c -o model2
    row "resume: $1" "$2" "$3" "$setup" --job job.toml --set train.max_steps=3 --resume c
}
# instead: a folder, a FIFO and a device in the place of the file SAID
instead() {
    local what=$1 code=$2 file=$3 setup=$4 folder="E0703|$3 is a directory"
    shift 4
    case $what in data | tokens) folder="E0454|$file holds no data file" ;; esac
    row "a folder for $what" "$code" "$folder" "$setup rm -rf $file; mkdir $file" "$@"
    row "a FIFO for $what" "$code" "E0703|$file is a FIFO" "$setup rm -rf $file; mkfifo $file" "$@"
    row "a device for $what" "$code" "E0703|$file is a device" "$setup rm -rf $file; ln -s /dev/zero $file" "$@"
}
as_root() { [ "$(id -u)" != 0 ] || row "$@"; }
as_user() { [ "$(id -u)" = 0 ] || row "$@"; }

# --- set-ups ---
section() { printf '%s\n' "$@" >>job.toml; }
# data FILE [LINE]...: the job trains on it; second PATH: on another source too
data() {
    local file=$1
    shift
    sed -i "s|^path = \"data.txt\"|path = \"$file\"|" job.toml
    for line; do sed -i "/^path = \"$file\"/a $line" job.toml; done
}
second() { section '[[data.train]]' "path = \"$1\""; }
# fp16 [LINE]...: the job computes in fp16, with these lines in [train.fp16]
fp16() {
    sed -i 's/^dtype = "fp32"$/dtype = "fp16"/; /^path = "model"$/{n;s/fp16/fp32/}' job.toml
    section '[train.fp16]' "$@"
}
optim() { section '[optim]' "$@"; }
lora() { section '[lora]' 'enabled = true' "$@"; }
# offload LINE...: the folder `disk` is there
offload() { mkdir disk && section '[offload]' "$@"; }
# from KEY VALUE: an adapter of PEFT's whose configuration has this key so
from() {
    cp -r "$fixtures/llama/lora" adapter
    python3 -I - "$1" "$2" <<'PY'
import json, sys
with open("adapter/adapter_config.json") as f:
    config = json.load(f)
config[sys.argv[1]] = json.loads(sys.argv[2])
with open("adapter/adapter_config.json", "w") as f:
    json.dump(config, f)
PY
    section '[lora]' 'path = "adapter"'
}
# stored NAME LINE...: a model in codes, and adapters
stored() {
    rm -r model
    cp -r "$fixtures/quant/$1" model
    cp "$fixtures/llama/model/tokenizer.json" model
    shift
    lora "r = 2" "$@"
}
# talks: a checkpoint of training on conversations, in place of the others
talks() {
    rm -r out
    printf '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n%.0s' 1 2 3 >a.jsonl
    data a.jsonl
    "$zerod" --job job.toml --set checkpoint.save_steps=1 --set checkpoint.export=none >log 2>&1
}
# broken FROM TO: of the same length, in every place of the model's file
broken() { edit model/model.safetensors "s/$1/$2/g"; }
# nul FILE TEXT: where the whole string is TEXT, a NUL and more after it
nul() { edit "$1" "s/\"$2\"/\"$2\\\\u0000x\"/"; }
# random SED: a model of [model.config], edited
random() {
    sed -i '/^path = "model"/d' job.toml
    printf '[model.config]\nmodel_type = "llama"\nhidden_size = 32\nnum_hidden_layers = 2\nnum_attention_heads = 4
num_key_value_heads = 2\nintermediate_size = 72\nvocab_size = 300\nmax_position_embeddings = 64\n' | sed "$1" >>job.toml
}
w=model/model.safetensors t=model/tokenizer.json # what set-ups edit
[ "$4" = checkpoint ] && two_checkpoints
[ "$4" = checkpoint ] || c=model/config.json

table "$2/tests/cli/bad/$4.txt"
tests_end
