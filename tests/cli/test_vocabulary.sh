#!/usr/bin/env bash
# A tokenizer with more tokens than the embedding has rows. usage: test_vocabulary.sh ZEROD SOURCE
fixtures=$2/tests/fixtures
. "$2/tests/cli/lib.sh"

# larger MODEL TO: a copy whose tokenizer has 20 tokens more
larger() {
    cp -r "$fixtures/$1/model" "$2" && python3 -I - "$2/tokenizer.json" <<'PY'
import json, sys
with open(sys.argv[1]) as f:
    tokenizer = json.load(f)
first = 1 + max([t["id"] for t in tokenizer["added_tokens"]] + list(tokenizer["model"]["vocab"].values()))
for i in range(20):
    tokenizer["added_tokens"].append({"id": first + i, "content": "<|new_%d|>" % i, "single_word": False, "lstrip": False,
                                      "rstrip": False, "normalized": False, "special": True})
with open(sys.argv[1], "w") as f:
    json.dump(tokenizer, f)
PY
}
# shape FILE NAME: that of a tensor
shape() {
    python3 -I - "$1" "$2" <<'PY'
import json, struct, sys
with open(sys.argv[1], "rb") as f:
    header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
print(*header[sys.argv[2]]["shape"])
PY
}
# rows FILE NAME BASE FROM: rows from FROM on of a tensor in fp32 are the mean of those of the base's in bf16
rows() {
    python3 -I - "$@" <<'PY'
import array, json, struct, sys
def read(path, name):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        begin = f.tell()
        tensor = header[name]
        f.seek(begin + tensor["data_offsets"][0])
        data = f.read(tensor["data_offsets"][1] - tensor["data_offsets"][0])
    if tensor["dtype"] == "BF16":
        data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    return tensor["shape"], array.array("f", data)
(n, width), ours = read(sys.argv[1], sys.argv[2])
(stored, _), base = read(sys.argv[3], "model.embed_tokens.weight")
for c in range(width):
    mean = sum(base[c::width]) / stored
    assert all(abs(ours[row * width + c] - mean) < 1e-6 for row in range(int(sys.argv[4]), n)), c
PY
}
job() { sed -e "s|^path = \"tests/fixtures/$1/model|path = \"$2|" -e "s|^path = \"tests/fixtures|path = \"$fixtures|" "$fixtures/$1/job.toml"; }

larger llama tied
larger llama_odd apart
ids=$(python3 -I -c 'import json; t = json.load(open("tied/tokenizer.json")); print(1 + max(a["id"] for a in t["added_tokens"]))')
job llama tied >job.toml
ok 'without adapters' eval 'call 65 --job job.toml --set job.output_dir=no && has "E0447.*$ids ids" err && has modules_to_save err'
printf '[lora]\nenabled = true\nr = 4\n' >>job.toml
ok 'with adapters, and no embedding among them' eval 'call 65 --job job.toml --set job.output_dir=no && has E0447 err'
saves='--set lora.modules_to_save=["embed_tokens"] --set train.max_steps=2'
ok 'validate, with the embedding' call 0 validate job.toml $saves
ok 'a run with the embedding' call 0 --job job.toml --set job.output_dir=run $saves --set train.max_steps=2
ok '  tells it' has '^  vocabulary 496 rows and [0-9]+ new' err
ok '  the adapter has them' eval '[ "$(shape run/peft/adapter_model.safetensors base_model.model.model.embed_tokens.weight)" = "$ids 32" ]'
ok '  new rows are the mean' eval 'call 0 --job job.toml --set job.output_dir=still $saves --set train.max_steps=1 --set "model.rope_scaling={rope_type=\"linear\",factor=2.0}" --set optim.learning_rate=1e-12 --set optim.weight_decay=0 &&
    rows still/peft/adapter_model.safetensors base_model.model.model.embed_tokens.weight tied/model.safetensors 496'
positions() { grep -o '"max_position_embeddings": [0-9]*' "$1/config.json" | grep -o '[0-9]*$'; }
ok '  positions grow by rope_scaling once' eval 'call 0 export still/checkpoint-000001 --merge -o scaled && [ $(positions scaled) = $((2 * $(positions tied))) ]'
ok '  the checkpoint goes on' call 0 --job job.toml --set job.output_dir=run $saves --set train.max_steps=3 --resume must
c=run/checkpoint-000003
ok 'export --merge' eval 'call 0 export $c --merge -o whole && grep -q "\"vocab_size\": $ids" whole/config.json && [ "$(shape whole/model.safetensors model.embed_tokens.weight)" = "$ids 32" ]'
ok 'merge gives the same' eval 'call 0 merge --base tied --adapter run/peft -o merged --dtype fp32 && cmp whole/model.safetensors merged/model.safetensors && grep -q "\"vocab_size\": $ids" merged/config.json'
ok 'generate' eval 'call 0 generate --model tied --adapter run/peft --prompt "The mill" --max-new-tokens 8 && mv out first && call 0 generate --model whole --prompt "The mill" --max-new-tokens 8 && cmp out first'
ok 'goes on from the adapter' call 0 --job job.toml --set job.output_dir=more --set lora.path=run/peft --set train.max_steps=1
job llama_odd apart >odd.toml
printf '[lora]\nenabled = true\nr = 4\n' >>odd.toml
ok 'a head apart that is not saved' eval 'call 78 --job odd.toml --set job.output_dir=none --set "lora.modules_to_save=[\"embed_tokens\"]" && has "E0326.*lm_head" err && [ ! -e none ]'
ok 'with the head' eval 'call 0 --job odd.toml --set job.output_dir=odd --set train.max_steps=1 --set "lora.modules_to_save=[\"embed_tokens\",\"lm_head\"]" &&
    [ "$(shape odd/peft/adapter_model.safetensors base_model.model.lm_head.weight)" = "$(shape odd/peft/adapter_model.safetensors base_model.model.model.embed_tokens.weight)" ]'
tests_end
