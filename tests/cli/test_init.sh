#!/usr/bin/env bash
# zerod init: recipes, jobs for a model and data that run as they are, and other trainers' files, each key of which is a
# key of the job, a comment, or an error that names it.
#   test_init.sh ZEROD SOURCE       prints TAP
fixtures=$2/tests/fixtures
recipes=$2/deploy/recipes
. "$2/tests/cli/lib.sh"
model=$fixtures/qwen3/model
for i in $(seq 400); do echo "{\"instruction\": \"Say the number $i.\", \"input\": \"\", \"output\": \"It is number $i, and no other.\"}"; done >data.jsonl
for i in $(seq 200); do echo "The miller's daughter kept the accounts of the mill better than her father had, line $i."; done >data.txt

# --- recipes ---
call 0 init --list
ok 'all recipes are listed' eval 'cut -d" " -f1 out | sort >listed && (cd "$recipes" && ls *.toml) | sed "s/.toml$//" | sort | diff listed - &&
    ! grep -vE "^[^ ]+ +[A-Z].{10,}" out'
ok '  and each is its file' eval 'while read -r name; do call 0 init "$name" && diff out "$recipes/$name.toml" || exit 1; done <listed'
ok '  into a file' eval 'call 0 init quickstart -o q.toml && has "^q.toml is written; next: zerod validate q.toml" err && diff q.toml "$recipes/quickstart.toml"'
ok '  which is not written over' eval 'call 73 init gpt2-xl -o q.toml && has E0223 err && diff q.toml "$recipes/quickstart.toml"'

# --- a model, data, this machine ---
for kind in '' --full --lora --qlora; do
    ok "a job for a model and data ${kind:-of either kind}" eval "rm -f j.toml; call 0 init --model \$model --data data.jsonl $kind -o j.toml &&
        call 0 validate j.toml --world 1 && call 0 --job j.toml --max-steps 2 --set data.cache_dir=cache --set job.output_dir=run$kind &&
        has '^# A rank takes [0-9.]+ [MG]iB of device memory' j.toml"
done
ok '  adapters where they are asked for' eval 'has "trained, the layers. matrices in nf4, scales in 8 bits, the others in [bf]" err && has "^enabled = true" j.toml && has "quantize_base = .nf4" j.toml && [ -f run--qlora/peft/adapter_model.safetensors ]'
ok '  of text: samples and batches that it makes' eval 'rm -f j.toml; call 0 init --model $model --data data.txt --world 2 -o j.toml &&
    call 0 plan --job j.toml --world 2 && call 0 --job j.toml --max-steps 1 --set data.cache_dir=cache --set job.output_dir=runt'
call 0 plan --job j.toml --world 1 --format json --set train.gradient_checkpointing=none
need=$(sed -n '/"name": "device"/{n;s/.*"planned_bytes": \([0-9]*\).*/\1/p}' out | head -n 1)
ok '  of little memory: it fits there' eval '[ $need -gt 0 ] && rm -f j.toml; call 0 init --model $model --data data.jsonl --device-memory $((need / 2)) --host-memory 1GiB -o j.toml &&
    call 0 plan --job j.toml --world 1 --device-memory $((need / 2)) --host-memory 1GiB && ! has memory_limit j.toml'
gpu=(--device-memory 4GiB --host-memory 64GiB --machine 4090)
ok '  of a GPU that is named: what it says is what a plan for GPUs has' eval 'rm -f j.toml; call 0 init --model $model --data data.jsonl "${gpu[@]}" -o j.toml && ! has "^backend" j.toml &&
    told=$(sed -n "s/^# A rank takes \([0-9.]*\) MiB of device memory.*/\1/p" j.toml) && for on in "" device.backend=cuda; do
        call 0 plan --job j.toml --world 1 "${gpu[@]}" ${on:+--set $on} && has "^device   cuda" out && sed -n "s/^  device takes \([0-9.]*\) .*/\1/p" out |
            awk -v told=$told "{ n++; exit !(told > \$1 - .01 && told < \$1 + .01) } END { if (!n) exit 1 }" || exit 1; done'
ok '  of a machine that was not measured' eval 'call 66 init --model $model --data data.jsonl --machine here && has E0609 err'
ok '  of data that is not there: where paths begin' eval 'call 66 init --model $model --data nix && has "E0430.*nix" err && has "relative to where zerod is started" err'
ok '  of a hub: how it is downloaded' eval 'call 66 init --model $model --data tatsu-lab/alpaca && has "E0430" err && has "hf download --repo-type dataset tatsu-lab/alpaca" err && has "relative to where zerod is started" err'
ok '  none fits: the smallest machine' eval 'call 69 init --model $model --data data.jsonl --device-memory 10KB && has "smallest machine that would do" err'

# A folder of several sets, of which none is the default.
mkdir sets && cp data.jsonl sets/one.jsonl && cp data.jsonl sets/two.jsonl
echo '{"one": {"file_name": "one.jsonl"}, "two": {"file_name": "two.jsonl"}}' >sets/dataset_info.json
ok 'a folder of several sets: which ones, and the option' eval 'call 65 init --model $model --data sets && has E0454 err && has "one, two" err && has "choose one: --data-name NAME" err'
ok '  one of them' eval 'rm -f j.toml; call 0 init --model $model --data sets --data-name two -o j.toml && has "^name = .two." j.toml && call 0 validate j.toml'
mkdir split && cp data.jsonl split/test.jsonl
ok 'a folder without the split: which it has, and the option' eval 'call 65 init --model $model --data split && has "it has test" err && has "choose one: --data-split NAME" err'
ok '  that split, and not for evaluation too' eval 'rm -f j.toml; call 0 init --model $model --data split --data-split test -o j.toml && has "^split = .test." j.toml &&
    ! has "^..data.eval" j.toml && call 0 validate j.toml'
ok '  help says what --data takes' eval 'call 0 init --help && has "--data takes a file, a folder" out'

# A model that is stored in codes.
ok 'the model that was trained whole, in codes' call 0 export run--full/checkpoint-000002 -o codes --quantize nf4
ok '  is trained as it is stored' eval 'rm -f j.toml; call 0 init --model codes --data data.jsonl -o j.toml && has "stored: nf4" j.toml && ! has quantize_base j.toml &&
    call 0 --job j.toml --max-steps 2 --set data.cache_dir=cache --set job.output_dir=runs && [ -f runs/peft/adapter_model.safetensors ]'
ok '  and not whole' eval 'call 65 init --model codes --data data.jsonl --full && has E0304 err'

# --- other trainers' files ---
# NAME CODE, and a line that stands in the job or in the error.
while IFS='|' read -r name want pattern; do
    case $name in
    ds-*) from=(--from-deepspeed "$fixtures/init/$name.json" --model M --data D.txt) ;;
    hf-*) from=(--from-hf "$fixtures/init/$name.json") ;;
    llamafactory-* | torchtune-*) from=(--from-"${name%%-*}" "$fixtures/init/$name.yaml" --data D.jsonl) ;;
    *) from=(--from-axolotl "$(echo "$fixtures/init/$name".y*)") ;;
    esac
    [ "$name" != hf-whole-dump ] || from+=(--model M --data D.txt)
    ok "$name: $want, $pattern" eval 'call $want init "${from[@]}" && cat out err | grep -qE -e "$pattern"'
    # every key of theirs is named: beside a value, in a comment, or in an error
    [ "$want" != 0 ] || ok "  every key is told" python3 "$fixtures/../support/keys_told.py" "${from[1]}" out err
    # models and data (and a disk) are elsewhere, which is all that is said
    [ "$want" != 0 ] || ok "  a valid job" eval 'cp out j.toml && call 66 validate j.toml --world 8 && grep "^error\[" err | grep -vE "E0219|E0656"; [ $? = 1 ]'
done <"$2/tests/cli/init_trainers.txt"

# --- rules: what a file says (a line of YAML, or of JSON), and what has to be in the job or in the errors ---
not_same() { sed -n '/^# Not quite the same here:/,/^# Not needed/p' "$1"; }
while IFS='|' read -r from want text pattern; do
    ok "$from: $text: $pattern" eval 'printf "$text" >given && call "$want" init "--from-$from" given --model M --data D.txt && grep -qE -e "$pattern" out err'
done <"$2/tests/cli/init_rules.txt"
# Sources of axolotl.
while IFS='|' read -r want text pattern; do
    ok "axolotl: $text: $pattern" eval 'echo "datasets: [{type: chat_template, $text}]" >given && call "$want" init --from-axolotl given --model M && grep -qE -e "$pattern" out err'
done <<'ROWS'
0|path: json, data_files: [a.jsonl, b.jsonl]|^path = "\{a.jsonl,b.jsonl\}"
0|path: D, data_files: a.jsonl, name: en, split: test|^split = "test"
0|path: D, roles: {user: [human, me], assistant: [assistant, gpt]}|^roles = \["human=user", "me=user", "gpt=assistant"\]
0|path: D, message_property_mappings: {role: from, tool_calls: tool_calls}|^role_field = "from"
78|path: D, message_property_mappings: {tool_calls: calls}|tool_calls = calls
78|path: D, split: "train[9:]"|a part of a split
ROWS
ok 'llamafactory: sets become sources' eval 'printf "dataset: one, two\ndataset_dir: d\nmax_samples: 5\neval_dataset: three\n" >given && call 0 init --from-llamafactory given --model M &&
    [ "$(grep -cE "^(path = .d.|name = .(one|two|three).|max_samples = 5)" out)" = 8 ] && has "^\[\[data.eval\]\]" out'
ok '  of a folder that describes none: not ready' eval 'mkdir none && cp data.jsonl none && printf "dataset: one\ndataset_dir: none\ncutoff_len: 32\n" >given && call 65 init --from-llamafactory given --model $model &&
    has "^# NOT READY.*none has no set .one., as neither a dataset_info.json" out && has "refuses the job: .*no set .one." err'
# What cannot be the same is told apart from what is not needed.
while IFS='|' read -r from text pattern; do
    data=(--data D)
    [ "$from" != axolotl ] || data=() # it would replace theirs
    ok "$from: $text: not the same" eval 'printf "$text" >given && call 0 init "--from-$from" given --model M "${data[@]}" && not_same out | grep -qE -e "$pattern"'
done <<'ROWS'
axolotl|datasets: [{path: D.txt, type: completion}]\n|datasets\[0\].type: axolotl cuts a long text
hf|{"report_to": "wandb"}|report_to: .*TensorBoard alone
hf|{"report_to": ["wandb", "tensorboard"]}|report_to: .*TensorBoard alone
deepspeed|{"optimizer": {"type": "AdamW", "params": {"weight_decay": 0.1}}}|weight_decay: norms and biases do not decay
deepspeed|{"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupLR", "params": {"warmup_type": "log"}}}|warmup_type: .*logarithm
llamafactory|template: chatml\n|template: a template renders
llamafactory|template: qwen\n|template: a template renders
axolotl|train_on_inputs: true\ndatasets: [{path: D.jsonl, type: chat_template}]\n|train_on_inputs: .*the markers too
ROWS
ok 'every key of the pinned versions: absent, with its default, with another value' python3 "$2/tests/cli/foreign_keys.py" "$zerod" "$fixtures/init/keys.json" "$2/docs/job.md"
alpaca() { # TRAIN_ON_INPUTS: the ids and the mask that axolotl makes of its rows
    printf 'base_model: %s\nsequence_len: 250\nlearning_rate: 1e-4\ntrain_on_inputs: %s\ndatasets:\n  - path: al.jsonl\n    type: alpaca\n' "$model" "$1" >a.yml
    python3 -I -c 'import json, sys
for row in json.load(open(sys.argv[1]))["rows"]: print(json.dumps(row))' "$fixtures/init/alpaca.json" >al.jsonl
    rm -f j.toml && call 0 init --from-axolotl a.yml -o j.toml && call 0 data inspect j.toml --format json --ids --count 3 --set data.cache_dir=cache && python3 -I -c 'import json, sys
want = json.load(open(sys.argv[1]))["made"][sys.argv[2]]
got = [[(i, int(p["trained"])) for p in s["pieces"] for i in p["ids"]] for s in json.load(open("out"))["shown"]]
key = lambda pairs: [pairs[0][0]] + pairs[1:]  # nothing predicts the first token
assert sorted(map(str, map(key, got))) == sorted(str(key(list(zip(*row)))) for row in want)' "$fixtures/init/alpaca.json" "$1"
}
ok "axolotl's alpaca: its prompt, ids and mask" alpaca false
ok '  with train_on_inputs' alpaca true
hf() { echo "{\"model_name_or_path\": \"M\", \"train_file\": \"D\", \"use_peft\": true, \"load_in_4bit\": true, $1 \"output_dir\": \"o\"}" >h.json; call "${2:-0}" init --from-hf h.json; }
ok "bitsandbytes' and PEFT's defaults are theirs" eval "hf '' && has '^double_quant = false' out && has '^quantize_base = \"nf4\"' out && has '^lora_dropout = 0.05' out && has '^target_modules = ..q_proj\", \"v_proj' out"
ok '  and what is said is heeded' eval "hf '\"bnb_4bit_quant_type\": \"fp4\", \"use_bnb_nested_quant\": true,' && has '^double_quant = true' out && has '^quantize_base = \"fp4\"  # bnb_4bit_quant_type' out && ! has '^#   bnb_4bit_quant_type' out"
ok '  all errors at once, where the file has them' eval 'hf "\"learning_rate\": -1,
    \"nope\": 1," 78 && has "h.json:1:8" err && has "h.json:2:6" err && has "^2 errors" err'
printf 'python run_clm.py --model_name_or_path gpt2 \\\n  --train_file x\n' >run_clm.sh
while read -r option file help; do
    ok "--from-$option of $file: $help" eval 'call 65 init "--from-$option" "$file" --model M --data D.txt && has E0221 err && has "$help" err'
done <<ROWS
hf run_clm.sh is a command line
axolotl run_clm.sh is a command line
hf $fixtures/init/axolotl-qlora.yml --from-axolotl
deepspeed $fixtures/init/llamafactory-lora.yaml --from-llamafactory
axolotl $fixtures/init/torchtune-lora.yaml --from-torchtune
llamafactory $fixtures/init/ds-zero2-hf.json --from-deepspeed
ROWS
ok 'a model without a tokenizer' eval 'mkdir -p bare && cp $model/config.json $model/*.safetensors bare && rm -f j.toml && call 66 init --model bare --data data.jsonl -o j.toml && has "no tokenizer.json" err &&
    has "^# .*tokenizer = .bytes" j.toml && call 66 validate j.toml && call 0 validate j.toml --set model.tokenizer=bytes'
for i in $(seq 100); do echo '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}'; done >talk.jsonl
echo 'Too little.' >short.txt
while IFS='|' read -r family data want says; do
    ok "a job that is not ready says why, and how to go on: $says" eval 'rm -f j.toml; call $want init --model $fixtures/$family/model --data $data -o j.toml &&
        has "refuses the job: .*$says" err && has "^# NOT READY.*$says" j.toml && call $want validate j.toml'
done <<'ROWS'
gpt2|talk.jsonl|78|set data.chat_template to
qwen3|short.txt|65|give more text
ROWS
ok 'what is on is not called off' eval 'call 0 init --from-hf "$fixtures/init/hf-run-clm.json" && has "^#   do_train: zerod trains" out'
ok 'a file that is not there' call 66 init --from-deepspeed nowhere.json --model M --data D.txt
yaml_only() { printf "$1" >a.yml; call "$2" init --from-axolotl a.yml; }
source_of() { yaml_only "base_model: $1\ndatasets:\n  - path: $2\n    type: alpaca\n$3" "$4"; } # MODEL PATH LINES CODE
for line in 'split: train[:20%%]' 'split: validation' 'shards: 10' 'roles_to_train: ["user", "assistant"]' 'train_on_eos: none'; do
    ok "a part of the data, or other tokens of it: $line" eval 'source_of M D.jsonl "    $line\n" 78 && has "datasets.0..${line%%:*} = " err'
done
ok '  what is so here is told' eval 'source_of M D.jsonl "    split: train\n    shards: 1\n    roles_to_train: [assistant]\n    train_on_eos: turn\n" 0 &&
    [ $(grep -cE "^#   datasets.0..(split|shards|roles_to_train|train_on_eos): as here" out) = 4 ]'
ok 'a model and data of a hub: how they come here' eval 'source_of gpt2 some/data "" 0 && has "hf download gpt2 " out && has "hf download some/data --repo-type dataset" out'
for line in '"dataset_train_split": "train[:1%]"' '"dataset_config": "main"'; do
    ok "a part of a data set: $line" eval 'printf "%s" "{\"model_name_or_path\": \"M\", \"dataset_name\": \"D\", $line}" >h.json; call 78 init --from-hf h.json && has "of that part with --data" err'
done
ok 'a model of fewer positions than the default length' eval 'echo "{}" >ds.json && call 0 init --from-deepspeed ds.json --model $model --data data.jsonl && has "^cutoff_len = [0-9]+  # the positions of the model" out'
ok 'lists that were taken are not told again' eval "printf 'datasets:\n  - path: D.txt\n    type: pretrain\n' >a.yml && call 0 init --from-axolotl a.yml --model M && ! has '^# +datasets' out"
ok 'a file that names no model' eval 'echo "{}" >ds.json && call 64 init --from-deepspeed ds.json --data D.txt && has "give --model DIR" err'
ok 'special tokens that are not the tokenizer'"'"'s' eval "printf 'special_tokens:\n  eos_token: \"<nope>\"\n' >a.yml && call 78 init --from-axolotl a.yml --model \$model --data D.txt &&
    has 'special_tokens.eos_token = <nope>' err"

# --- what is asked wrongly ---
while read -r words; do
    # shellcheck disable=SC2086
    ok "init $words: 64" eval "call 64 init $words"
done <<'ROWS'

nosuch
quickstart --lora
--list --model M
--model M
--model M --data D --full --lora
--from-hf a.json --from-axolotl b.yml
--from-hf a.json --from-torchtune b.yml
--from-hf a.json --qlora
--from-hf a.json --data-name a
--from-hf a.json --data-split test
ROWS
ok 'init of no model: 66' call 66 init --model nowhere --data data.txt
ok 'init of no data: 66' call 66 init --model "$model" --data nowhere.txt
tests_end
