#!/usr/bin/env bash
# Damaged checkpoints, and checkpoints that do not belong to the job, one row each. Each row's `out` holds two that
# are sound, and has to keep every byte. usage: test_bad_checkpoint.sh ZEROD SOURCE
. "$(dirname "$0")/bad_input.sh"
two_checkpoints

# damage NAME CODE SAID SETUP: the checkpoint `c` after SETUP, as verify, export and a resuming run see it
damage() {
    local name=$1 code=$2 said=$3 setup="cp -r $c c; $4"
    row "verify: $name" "$code" "$said" "$setup" ckpt verify c
    row "export: $name" "$code" "$said" "$setup" export c -o model2
    row "resume: $name" "$code" "$said" "$setup" --job job.toml --set train.max_steps=3 --resume c
}
damage 'a shard cut' 65 "E0804|c/$shard|bytes" "truncate -s -4 c/$shard"
damage 'a byte of a shard' 65 "E0805|c/$shard|digest" "poke_tensors c/$shard 4000 '\\125'"
damage 'no shard' 65 "c/$shard" "rm c/$shard"
damage 'a folder for a shard' 65 "c/$shard" "rm c/$shard; mkdir c/$shard"
damage 'a device for a shard' 65 "c/$shard" "ln -sf /dev/zero c/$shard"
damage 'a FIFO for a shard' 65 "c/$shard" "rm c/$shard; mkfifo c/$shard"
damage 'a byte of config.json' 65 'E0805|c/config.json|digest' 'poke c/config.json 3 A'
damage 'no manifest' 65 'E0801|c is not a checkpoint|manifest.json' 'rm c/manifest.json'
damage 'a manifest cut' 65 'E0711|c/manifest.json:' 'truncate -s -20 c/manifest.json'
damage 'a manifest of no byte' 65 'E0711|c/manifest.json:' ': >c/manifest.json'
damage 'a manifest changed by hand' 65 'E0803|c/manifest.json|digest' 'edit c/manifest.json "s/\"step\": 2/\"step\": 3/"'
damage 'a manifest of another format' 65 'E0802|c/manifest.json|format' 'edit c/manifest.json "s/\"format\": 5/\"format\": 99/"'
damage 'a manifest that is a list' 65 'E0802|c/manifest.json' 'echo "[]" >c/manifest.json'
damage 'a FIFO for the manifest' 65 'c/manifest.json' 'rm c/manifest.json; mkfifo c/manifest.json'
damage 'no checkpoint' 66 'c' 'rm -r c'
row 'show: a manifest changed by hand' 65 'E0803|c/manifest.json' "cp -r $c c; edit c/manifest.json 's/\"step\": 2/\"step\": 3/'" ckpt show c
row 'show: a folder without a manifest' 65 'E0801|model' '' ckpt show model
row 'show: the folder of a run' 65 'E0801|ckpt ls out' '' ckpt show out
row 'verify: the folder of a run' 65 'E0801|ckpt ls out' '' ckpt verify out
row 'ls: a file' 65 'E0801|data.txt' '' ckpt ls data.txt
row 'ls: nothing' 66 'E0801|none' '' ckpt ls none

# --- a checkpoint of something else ---
more='--job job.toml --set train.max_steps=3'
row 'resume: a model of another width' 65 'E0810|another model|out/checkpoint-000002|[496, 32] there and [509, 42]|new job.output_dir' \
    'rm -r model; cp -r $fixtures/llama_odd/model model' $more
row 'resume: a model of another depth' 65 'E0810|another model|out/checkpoint-000002|new job.output_dir' \
    'rm -r model; cp -r $fixtures/qwen2/model model' $more
row 'resume: other data' 78 'E0811|[[data.train]]' 'echo "One line more." >>data.txt' $more
row 'resume: another cutoff_len' 78 'E0811|cutoff_len|32|16' 'edit job.toml "s/cutoff_len = 32/cutoff_len = 16/"' $more
row 'resume: other packing' 78 'E0811|packing' '' $more --set data.packing=false
row 'resume: another order' 78 'E0811|shuffle' '' $more --set data.shuffle=false
row 'resume: another data_seed' 78 'E0811|data_seed|42|7' '' $more --set job.data_seed=7
row 'resume: another tokenizer' 78 'E0811|tokenizer' 'edit model/tokenizer.json "s/\"h e\", //"' $more
row 'resume: must, and none verifies' 66 'E0801|out' \
    "for i in 1 2; do truncate -s -4 out/checkpoint-00000\$i/$shard; done" $more --resume must

# --- nothing written over ---
row 'export: onto a folder of something else' 73 'E0314|other' 'mkdir other; echo >other/thesis.tex' export $c -o other
row 'export: onto a file' 73 'E0314|data.txt' '' export $c -o data.txt
row 'export: into the checkpoint' 73 "E0314|$c" '' export $c -o $c
row 'output_dir in use by another job' 73 'E0734|out|in use' 'exec 9<>out/.zerod.lock; flock -n 9' $more
exec 9>&-
done_rows
