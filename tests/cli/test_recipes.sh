#!/usr/bin/env bash
# Every recipe is a sound job and its plan fits what it says; the models are known by their shapes alone here.
#   test_recipes.sh ZEROD SOURCE       prints TAP
recipes=$2/deploy/recipes
. "$2/tests/cli/lib.sh"
refused() { # CODE TEXT COMMAND...: ends with CODE and says TEXT
    local want=$1 text=$2 code
    shift 2
    "$@" >said 2>&1
    code=$?
    cat said
    [ $code = "$want" ] && grep -q -e "$text" said
}
mkdir -p data/val out
while read -r name config; do
    mkdir -p "models/$name" && echo "$config" >"models/$name/config.json"
    printf '\2\0\0\0\0\0\0\0{}' >"models/$name/model.safetensors" # of no tensors: validate reads headers
done <"$2/tests/cli/recipe_models.txt"
tokenizers=$2/tests/fixtures/tokenizers
cp "$tokenizers"/gpt2/tokenizer*.json models/gpt2-xl
for model in gemma-3-1b-it Qwen3-0.6B Qwen3-8B Qwen3-14B phi-4 SmolLM3-3B; do cp "$tokenizers"/qwen2/tokenizer*.json "models/$model"; done
for model in models/{Llama,Mistral}*; do cp "$tokenizers"/llama3/tokenizer*.json "$model"; done
# validate reads the data as a run does: many samples of a recipe's format are there
many() { yes "$1" | head -n 9000; }
many "text of a document" >out/kjv.txt
data_of() { # RECIPE
    rm -f data/*.jsonl
    case $(sed -n 's/^format = "\(.*\)"/\1/p' "$1" | head -n 1) in
    text) many '{"text": "text of a document"}' | tee data/a.jsonl >data/val/a.jsonl ;;
    chat) many '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' >data/chat.jsonl ;;
    alpaca) many '{"instruction": "a", "output": "b"}' >data/alpaca.jsonl ;;
    esac
}

for recipe in "$recipes"/*.toml; do
    name=$(basename "$recipe" .toml)
    case $name in scratch-*) continue ;; esac # its data are made by another program
    data_of "$recipe"
    ok "$name is a valid job" eval '"$zerod" validate "$recipe" >said 2>&1 && ! grep "config.json has keys" said'
done
for name in gpt2-xl-12gb llama-3.2-1b-24gb llama-3.2-3b-24gb llama-3.1-8b-24gb smollm3-3b-24gb; do
    ok "$name fits" "$zerod" plan --job "$recipes/$name.toml" --world 1
    ok "  and says what the host holds" refused 0 '^host bytes per trained parameter 8\.\|^host bytes per trained parameter 9\.30' \
        "$zerod" plan --job "$recipes/$name.toml" --world 1
done
for name in qwen3-0.6b-lora llama-3.2-1b-lora gemma-3-1b-sft; do
    ok "$name fits" refused 0 'trained)' "$zerod" plan --job "$recipes/$name.toml" --world 1
done
# fits WORLD RECIPE ARGUMENT...: on GPUs, driver and libraries included
fits() {
    local world=$1 recipe=$2
    shift 2
    refused 0 'zero.base.codes' "$zerod" plan --job "$recipes/$recipe.toml" --world "$world" --set device.backend=cuda "$@"
}
ok "llama-3.1-8b-qlora fits" fits 1 llama-3.1-8b-qlora
ok "phi-4-qlora-24gb fits" fits 1 phi-4-qlora-24gb
sed -i 's/"model_type"/"unsloth_fixed": true, "use_cache": true, &/' models/phi-4/config.json
ok "  and a key that transformers does not have is named in one warning" eval 'fits 1 phi-4-qlora-24gb >all &&
    grep -q "^warning: config.json has keys that a phi3 model does not have in transformers; they are ignored: .unsloth_fixed.$" all &&
    [ $(grep -c unsloth all) = 1 ] && "$zerod" validate "$recipes/phi-4-qlora-24gb.toml" 2>&1 | grep -c unsloth | grep -x 1'
ok "qwen3-8b-long-yarn fits" refused 0 'trained)' "$zerod" plan --job "$recipes/qwen3-8b-long-yarn.toml" --world 1 --set device.backend=cuda
# The same by a job as by the model's own config.json: what is trained, and what is exported; only a new run may change it.
yarn=$2/tests/fixtures/qwen3_yarn
python3 -I -c 'import json, sys
config = json.load(open(sys.argv[1])); print("{%s}" % ", ".join(f"{k} = {json.dumps(v)}" for k, v in config.pop("rope_scaling").items()))
json.dump({**config, "max_position_embeddings": 64}, open("models/yarn.json", "w"))' "$yarn/model/config.json" >scaling
cp -r "$yarn/model" models/yarn && mv models/yarn.json models/yarn/config.json
first_loss() { python3 -I -c 'import json, sys; print(json.loads(open(sys.argv[1] + "/metrics.jsonl").readline())["loss"])' "$1"; }
short() { "$zerod" --job "$yarn/job.toml" --quiet --max-steps 3 --set data.cache_dir=$work/cache "$@"; }
ok "  rope_scaling of a job is as the model's own" eval '(cd "$recipes/../.." && short --set job.output_dir=$work/own &&
    short --set job.output_dir=$work/given --set model.path=$work/models/yarn --set "model.rope_scaling=$(cat $work/scaling)") &&
    [ "$(first_loss own)" = "$(first_loss given)" ] && grep -q yarn own/hf/config.json && diff <(python3 -I -m json.tool --sort-keys own/hf/config.json) <(python3 -I -m json.tool --sort-keys given/hf/config.json)'
ok "  and a resumed run must have the same" eval '(cd "$recipes/../.." && ! short --max-steps 4 --set job.output_dir=$work/given --set model.path=$work/models/yarn) 2>&1 |
    grep -q "E0811.*model.rope_scaling"'
adapted() { (cd "$recipes/../.." && short --set "job.output_dir=$work/$1" --set "model.path=$work/models/yarn" --set lora.enabled=true --set lora.r=2 "${@:2}"); }
ok "  an adapter knows it: the merged model has it, and the folder the tokenizer" eval 'adapted peft --set "model.rope_scaling=$(cat scaling)" &&
    "$zerod" export peft/checkpoint-000003 -o again 2>&1 | grep "trained with model.rope_scaling" && diff -r again peft/peft &&
    "$zerod" merge --base models/yarn --adapter peft/peft -o merged --dtype fp32 && grep yarn merged/config.json &&
    "$zerod" export peft/checkpoint-000003 --merge -o whole && diff -r merged whole && "$zerod" generate --model models/yarn --adapter peft/peft --prompt the >text &&
    "$zerod" generate --model merged --prompt the | diff text - && diff models/yarn/tokenizer.json peft/peft/tokenizer.json'
ok "  and a job that goes on from it must have the same" eval 'refused 65 E0326.*rope_scaling adapted more --set lora.path=$work/peft/peft &&
    adapted more --set lora.path=$work/peft/peft --set "model.rope_scaling=$(cat scaling)"'
ok "llama-3.1-70b-qlora-48gb fits" fits 1 llama-3.1-70b-qlora-48gb
ok "llama-3.1-70b-qlora-2x24gb fits" fits 2 llama-3.1-70b-qlora-2x24gb
# trained whole on one GPU: with bf16 weights and 8-bit states 6 bytes a parameter, with fp32 masters 8
while read -r recipe parameters host bytes; do
    ok "$recipe: $parameters parameters in $host of host" refused 0 "^host bytes per trained parameter $bytes" \
        "$zerod" plan --job "$recipes/$recipe.toml" --world 1 --set device.backend=cuda --set device.host_memory_limit="$host"
    ok "  and not in 3 % less" refused 69 "of device.host_memory_limit" "$zerod" plan --job "$recipes/$recipe.toml" --world 1 \
        --set device.backend=cuda --set device.host_memory_limit="$((${host%GB} * 97 / 100))GB"
done <<'ROWS'
llama-3.1-70b-80gb 70.6e9 433GB 6\.1
mistral-large-123b-80gb 122.6e9 743GB 6\.0
qwen3-14b-24gb 14.8e9 134GB 8\.3
ROWS
sed -i 's/"num_hidden_layers": 88/"num_hidden_layers": 86/' models/Mistral-Large-2/config.json
ok "  119.8e9 parameters in 730 GB" refused 0 '(119841779712 trained)' "$zerod" plan --job "$recipes/mistral-large-123b-80gb.toml" --world 1 \
    --set device.backend=cuda --set device.host_memory_limit=730GB
# 41,943,040 elements of adapters: 12 bytes each with AdamW, 6.03 with states in 8 bits
ok "  a checkpoint of it takes 480 MiB with adamw" refused 0 '^  save .* 480\.000$' \
    "$zerod" plan --job "$recipes/llama-3.1-8b-qlora.toml" --world 1 --set device.backend=cuda --set optim.name=adamw
ok "  and 241 with adamw_8bit" refused 0 '^  save .* 241\.250$' \
    "$zerod" plan --job "$recipes/llama-3.1-8b-qlora.toml" --world 1 --set device.backend=cuda --set optim.name=adamw_8bit
one=(--set train.per_device_train_batch_size=1 --set train.global_batch_size=1)
host=(--set offload.params=cpu --set offload.optimizer=cpu --set offload.activations=cpu)
ok "8B in 4 bits, one sequence of 2048, fits 7.5 GiB" fits 1 llama-3.1-8b-qlora "${one[@]}" --set device.memory_limit=7.5GiB
ok "  and sixteen, with their gradients added up in fp32, and paged states" fits 1 llama-3.1-8b-qlora "${one[@]}" \
    --set train.global_batch_size=16 --set optim.name=paged_adamw_8bit --set device.memory_limit=7.5GiB
ok "  with parameters and activations on the host 3 GiB" fits 1 llama-3.1-8b-qlora "${one[@]}" "${host[@]}" \
    --set device.memory_limit=3GiB
ok "70B in 4 bits, with activations on the host, fits 41 GiB" fits 1 llama-3.1-70b-qlora-48gb "${one[@]}" \
    --set device.memory_limit=41GiB
ok "  with parameters too 5 GiB" fits 1 llama-3.1-70b-qlora-48gb "${one[@]}" "${host[@]}" --set device.memory_limit=5GiB \
    --set device.host_memory_limit=48GiB
ok "gpt2-xl-12gb fits 6 GiB, adding gradients up on the host" refused 0 'offload.accumulators' \
    "$zerod" plan --job "$recipes/gpt2-xl-12gb.toml" --world 1 --set device.memory_limit=6GiB
ok "too little host memory is refused with the NVMe setting that fits" refused 69 'set offload.optimizer=nvme' \
    "$zerod" plan --job "$recipes/llama-3.1-8b-24gb.toml" --world 1 --set device.host_memory_limit=32GiB
tests_end
