#!/usr/bin/env bash
# What the commands promise to scripts, with one process each. usage: test_commands.sh ZEROD SOURCE ZERODCTL
# What generate writes is held against transformers in tests/program.
fixtures=$2/tests/fixtures ctl=$(realpath "$3")
. "$2/tests/cli/lib.sh"
. "$2/tests/support/small_job.sh"
plain() { ! grep -q "$(printf '\033')" out err; }

small_job "$fixtures"

# --- validate ---
ok 'validate' call 0 validate job.toml
ok 'validate says so on stdout alone' eval '[ "$(cat out)" = "job.toml: valid" ] && [ ! -s err ]'
ok 'weights that are cut, and none' eval 'cp -r model cut && truncate -s -100 cut/model.safetensors && call 65 validate job.toml --set model.path=cut && has "cut/model.safetensors" err &&
    call 69 doctor --job job.toml --set model.path=cut && has "^stops the job: \[E0726\] cut/model.safetensors has " out &&
    call 65 --job job.toml --set model.path=cut && has E0726 err && [ ! -e run ] &&
    rm cut/model.safetensors && call 65 validate job.toml --set model.path=cut && has "E0307.*neither model.safetensors" err &&
    call 69 doctor --job job.toml --set model.path=cut && has "^stops the job: \[E0307\]" out &&
    call 0 validate job.toml --set model.path=cut --set run.resume=cut && has "^warning: cut has no model.safetensors: only a start that goes on" err && rm -r cut'
ok 'a limit without a unit' eval 'call 0 validate job.toml --set device.memory_limit=12 && has "^warning: device.memory_limit is 12 bytes: write a size like" err'
rows='^warning: \[model.config\] has no vocab_size: the model has 32000 rows'
ok '[model.config] without a vocab_size' eval 'sed "/^vocab_size/d" "$fixtures/../cli/doctor.toml" >rows.toml && call 0 validate rows.toml && has "$rows" err && call 0 plan rows.toml && has "$rows" err'
ok 'a plan with a tokenizer of more ids than the model has rows' eval 'sed "s/^vocab_size.*/vocab_size = 100/" "$fixtures/../cli/doctor.toml" >few.toml &&
    call 0 plan few.toml --set "model.tokenizer=\"model\"" && has "^warning: a run would be refused: the tokenizer .* has 495 ids, the model.s vocab_size is 100" err'
ok 'validate --print: what was set and what was not' call 0 validate job.toml --print --world 4 --set train.max_steps=9
ok '  a switch with batch_size in its name is no batch size' has '^auto_find_batch_size = false +# default$' out
ok '  the value of --set and its origin' has 'max_steps *= 9 .*--set' out
ok '  a value of the file and its line' has 'cutoff_len *= 32 .*job.toml:7' out
ok '  a default' has 'adam_beta1 *= 0.9 .*default' out
ok '  no escape codes' plain
ok '--set of a plain word' call 0 validate job.toml --set optim.lr_scheduler_type=linear
ok '--set of a TOML string' call 0 validate job.toml --set 'optim.lr_scheduler_type="linear"'
ok 'a --set that fails leaves stdout empty' eval 'call 78 validate job.toml --print --set optim.lr_scheduler_type=cubic && [ ! -s out ]'
ok 'JSON of a failure' call 78 validate job.toml --format json --set train.max_steps=no --set data.cutoff_len=0 --set 'data.train=[{path="none"}]'
ok '  its problems on stdout, and on stderr as always' eval \
    'has "^  \"valid\": false" out && has "^  \"errors\": 3" out && [ $(grep -c "\"code\": \"E02\(05\|06\|19\)\"" out) = 3 ] && [ $(grep -c "^error" err) = 3 ]'
ok 'JSON of a failure in a line of the file' eval \
    'sed "s/^cutoff_len = 32/cutoff_len = 0/" job.toml >wrong.toml && call 78 validate wrong.toml --format json &&
     has "\"line\": 7" out && has "\"column\": 14" out && has "\"file\": \"wrong.toml\"" out'
ok 'JSON of a job file that is not there' eval 'call 66 validate none.toml --format json && has "\"code\": " out'
ok 'JSON of a plan that is refused' eval \
    'call 78 plan --job wrong.toml --world 1 --format json && has "\"line\": 7" out && has "^error.E0206" err'
ok 'JSON of a plan that does not fit' eval \
    'call 69 plan --job job.toml --world 1 --format json --set device.memory_limit=1KB && has "\"code\": \"E0601\"" out &&
     has "largest spans" out && [ $(grep -c ^error err) = 1 ]'
ok 'no text of --set breaks the JSON' eval 'call 78 validate job.toml --format json --set "optim.name=\"$(printf "\377\"")" && has "^}" out && has E0207 out'
ok 'validate without a number of ranks asks nothing that depends on it' call 0 validate job.toml \
    --set offload.optimizer=cpu --set offload.params=cpu --set zero.stage=1
while IFS='|' read -r words guess; do ok "zerod $words: a guess" eval "call 64 $words && has 'did you mean .$guess' err"; done <<'ROWS'
job.toml|zerod --job job.toml
valdiate job.toml|validate
ROWS
printf '{"text": "one"}\n{"text": "two"}\n{"text": 3}\n' >rows.jsonl
ok 'a bad row is named' eval 'sed "s|^path = .data.txt.|path = \"rows.jsonl\"|" job.toml >rows.toml && call 65 validate rows.toml && has "rows.jsonl:3" err'
ok '--set of nothing but blanks' eval 'call 64 validate job.toml --set " = 9" && has "^error.E0101" err'
ok '--set with blanks, as a file has it' eval \
    'call 0 validate job.toml --print --set "optim.lr_scheduler_type = linear " --set " train.max_steps = 9" && has "lr_scheduler_type *= \"linear\"" out && has "max_steps *= 9" out'

# --- plan ---
# The plan without what only a run knows.
planned() { sed -E '/"taken_bytes"/d; /^  "(predicted|limits)": \{$/,/^  \},?$/d; s/,$//' "$1"; } # without what was taken, what is free now, and the time
for world in 1 2 3 4 5 6 7 8; do
    ok "plan, $world ranks" eval \
        "call 0 plan --job job.toml --world $world && cp out text && call 0 plan --job job.toml --world $world --format json"
    ok "  text and JSON agree" eval \
        'sum=$(sed -n "s/^each rank sends.*reduce-scatter \([0-9]*\), all-gather \([0-9]*\), all-to-all \([0-9]*\), all-reduce \([0-9]*\).*/\1 \2 \3 \4/p" text);
         [ -n "$sum" ] && for part in $sum; do grep -qE ": $part,?\$" out || exit 1; done &&
         [ $(grep -c "\"rank\"" out) = '$world' ]'
done
ok 'no job' call 66 plan --job none.toml --world 2
# With parameters and residual streams on the host it holds two layers, the head and what one layer computes; and rope's
# angles for as many positions as samples on request find room for, which is less in a deep model.
sed "s|\"tests/fixtures|\"$fixtures|" "$fixtures/deep.toml" >deep.toml
on_device() { # LAYERS
    sed -n '/"device"/,/planned_bytes/s/.*"planned_bytes": //p' <<<"$("$zerod" plan --world 1 --job deep.toml --format json \
        --set model.config.num_hidden_layers="$1" --set train.gradient_checkpointing=full --set offload.optimizer=cpu \
        --set offload.params=cpu --set offload.activations=cpu --set offload.accumulate=host \
        --set control.socket=none)"
}
ok 'plan: weights and residual streams on the host' eval '[ -n "$(on_device 6)" ] && [ "$(on_device 6)" = "$(on_device 96)" ]'

# --- a run, to step 2 of 3 ---
ok 'a run with --stop-after 2' call 0 --job job.toml --stop-after 2 --set checkpoint.save_steps=1
ok '  nothing on stdout, no escape codes' eval '[ ! -s out ] && plain'
ok '  the banner, a line of the first step, the next command' eval 'has "model .*llama" err && has "^step 1/3" err && has "next " err'
ok '  it ends as stopped, and says by what' eval 'has "^stopped after step 2 of 3 .--stop-after., in" err && grep -q "\"stopped_by\": *\"--stop-after\"" run/status.json &&
    grep -q "\"state\": *\"stopped\"" run/status.json'
ok '  its checkpoints are there, no model yet' eval '[ -d run/checkpoint-000001 ] && [ -d run/checkpoint-000002 ] && [ ! -e run/hf ]'
ok '  a row of metrics for each step' eval '[ $(wc -l <run/metrics.jsonl) = 2 ]'
sum_of_run() { find run -name 'checkpoint-*' -prune -o -name metrics.jsonl -print0 | xargs -0 cat; ls run; }
sum_of_run >before
ok 'a run that is there already: nothing to do, and why' eval 'call 0 --job job.toml --stop-after 1 --set checkpoint.save_steps=1 &&
    has "^nothing to do: .*--stop-after.* after step 1, and run/checkpoint-000002 is at step 2 already$" err && ! has "^step " err'
ok '  also at that very step' eval 'call 0 --job job.toml --stop-after 2 --set checkpoint.save_steps=1 && [ $(grep -c "^nothing to do: " err) = 1 ]'
ok '  and it leaves rows and checkpoints as they were' eval 'sum_of_run | cmp - before'
ok '  a run with steps to make says nothing of it' eval 'call 0 --job job.toml --stop-after 1 --set job.output_dir=short && ! has "nothing to do" err && rm -r short'
call 0 plan --job job.toml --world 1 --format json
ok '  plan.json is the plan' eval 'planned run/plan.json >plan && planned out | cmp - plan'
ok '  every planned byte was taken' eval \
    '[ "$(sed -n "s/.*\"planned_bytes\": //p" run/plan.json)" = "$(sed -n "s/.*\"taken_bytes\": //p" run/plan.json)" ]'

# --- checkpoints ---
c=run/checkpoint-000002
ok 'ckpt ls' eval 'call 0 ckpt ls run && [ $(grep -c " ok  *run/checkpoint-00000" out) = 2 ] && has "SIZES" out && [ ! -s err ]'
ok 'ckpt ls as JSON' eval 'call 0 ckpt ls run --format json && has "\"step\": 1," out && has "\"step\": 2," out'
ok 'ckpt show' eval 'call 0 ckpt show $c && has "^step *2 of 3" out && has "^samples  [0-9]* taken" out'
ok 'ckpt show as JSON' call 0 ckpt show $c --format json
for key in step world stage files tensors ok; do ok "  $key" has "^  \"$key\":" out; done
ok 'ckpt verify' eval 'call 0 ckpt verify $c && [ ! -s err ]'
ok 'no absolute path in a checkpoint' eval '! grep -raqF "$work" $c'

# --- export ---
ok 'export' call 0 export $c -o hf
ok '  config, tokenizer and weights' eval '[ -s hf/config.json ] && [ -s hf/tokenizer.json ] && [ -s hf/model.safetensors ]'
ok '  numbers as they came' grep -q '"rms_norm_eps": 1e-05,' hf/config.json
ok '  the same bytes again' eval 'call 0 export $c -o hf2 && cmp hf/model.safetensors hf2/model.safetensors'
ok '  which is said' eval '[ "$(cat out)" = "hf2: model written" ]'
ok '  over an export of ours, which is said' eval 'call 0 export $c -o hf2 && [ "$(cat out)" = "hf2: model written, in place of the one that zerod wrote there before" ]'
for type in fp32 bf16 fp16; do
    case $type in fp32) stored=F32 ;; bf16) stored=BF16 ;; fp16) stored=F16 ;; esac
    ok "export --dtype $type" eval "call 0 export $c -o $type --dtype $type && head -c 2000 $type/model.safetensors | grep -q '\"dtype\": *\"$stored\"'"
done
ok 'export --quantize nf4' eval "call 0 export $c -o nf4 --quantize nf4 --double-quant && grep -q bitsandbytes nf4/config.json"
ok '  generate reads it' eval 'call 0 generate --model nf4 --prompt "The mill" --max-new-tokens 4 && [ -s out ]'
ok '  a run without adapters does not train it' eval 'call 65 --job job.toml --set model.path=nf4 --set job.output_dir=no && has "quantization_config" err && [ ! -e no ]'
adapt() { # OUT ARGUMENT...: three steps of adapters
    local to=$1
    shift
    call 0 --job job.toml --set lora.enabled=true --set lora.r=4 --set job.output_dir="$to" "$@"
}
for format in nf4 int8; do
    nested=
    [ $format = nf4 ] && nested=--double-quant
    ok "export --quantize $format, fp32 beside it" call 0 export $c -o stored-$format --quantize $format $nested --dtype fp32
    ok '  adapters train on it' adapt on-$format --set model.path=stored-$format
    ok '  what to type next' has "next  *zerod generate --model stored-$format --adapter on-$format/peft --prompt" err
    ok '  as on what is quantized when it is loaded' eval \
        'adapt by-$format --set model.path=fp32 --set lora.quantize_base=$format && cmp {on,by}-$format/peft/adapter_model.safetensors'
    ok '  not as on what is not' eval \
        'adapt without-$format --set model.path=fp32 && ! cmp -s {on,without}-$format/peft/adapter_model.safetensors'
    ok '  generate with both' eval 'call 0 generate --model stored-$format --adapter on-$format/peft --prompt "The mill" --max-new-tokens 4 && [ -s out ]'
    ok '  merge decodes it, and says that the original loses less' eval \
        'call 0 merge --base stored-$format --adapter on-$format/peft -o merged-$format && has "stored-$format is stored quantized.*loses less" err &&
        ! grep -q quantization_config merged-$format/config.json'
    ok '  which is said' eval '[ "$(cat out)" = "merged-$format: model written" ]'
    ok '  --print of it says what the adapter has' eval 'call 0 validate job.toml --print --set model.path=fp32 --set lora.path=by-$format/peft &&
        has "^r = 4 .*# lora.path" out && has "^lora_alpha = .*# lora.path" out && has "^init_lora_weights = .*# default" out'
    ok '  no model replaces an adapter' eval 'call 73 merge --base stored-$format --adapter on-$format/peft -o by-$format/peft && has "E0314.*holds an adapter" err &&
        [ -s by-$format/peft/adapter_model.safetensors ]'
    ok '  and no adapter a model' eval 'call 73 export "$(ls -d on-$format/checkpoint-* | tail -n 1)" -o merged-$format && has "E0314.*holds a model" err'
    ok '  export --merge does too' eval \
        'call 0 export "$(ls -d on-$format/checkpoint-* | tail -n 1)" --merge -o exported-$format && has "stored-$format is stored quantized.*loses less" err'
    ok '  a run that writes the merged model too' eval \
        'adapt hf-$format --set model.path=stored-$format --set checkpoint.export=hf && has "stored-$format is stored quantized.*loses less" err'
done
# GPT-2 stores its weights turned: more rows are quantized at once than are read at once.
sed "s|\"tests/fixtures|\"$fixtures|; s/\"llama\"/\"gpt2\"/; s/^hidden_size.*/n_embd = 24/; s/^intermediate_size.*/n_inner = 2100/; s/^num_hidden_layers.*/n_layer = 1/
    s/^num_attention_heads.*/n_head = 4/; /^num_key_value/d; s/^max_position_embeddings/n_positions/" "$fixtures/deep.toml" >wide.toml
ok 'a wide GPT-2' call 0 --job wide.toml --set train.max_steps=1 --set job.output_dir=wide --set eval.eval_strategy=no
ok '  in fp32' call 0 export wide/checkpoint-000001 -o wide-fp32 --dtype fp32
ok '  in nf4' call 0 export wide/checkpoint-000001 -o wide-nf4 --quantize nf4 --dtype fp32
for from in wide-nf4 wide-fp32; do
    ok "  adapters on $from" eval 'sed "/^.model.config/,/^$/d" wide.toml >on-wide.toml && call 0 --job on-wide.toml --set model.path=$from \
        --set lora.enabled=true --set lora.quantize_base=nf4 --set lora.double_quant=false --set job.output_dir=on-$from --set train.max_steps=2 --set eval.eval_strategy=no'
done
ok '  the same' cmp on-wide-nf4/peft/adapter_model.safetensors on-wide-fp32/peft/adapter_model.safetensors
ok 'export --double-quant of nothing' call 64 export $c -o no --double-quant
ok 'a checkpoint that was copied exports the same' eval 'cp -r $c moved && call 0 export moved -o hf3 && cmp hf/model.safetensors hf3/model.safetensors'

# --- generate ---
ok 'generate from an export' eval 'call 0 generate --model hf --prompt "The mill" --max-new-tokens 8 && [ -s out ] && plain'
mv out first
ok '  greedy is the same every time' eval 'call 0 generate --model hf --prompt "The mill" --max-new-tokens 8 && cmp out first'
ok '  a longer one goes on from there' eval \
    'call 0 generate --model hf --prompt "The mill" --max-new-tokens 16 && head -c $(($(wc -c <first) - 1)) first | cmp -n $(($(wc -c <first) - 1)) - out'
ok '  texts side by side, a line of JSON each' eval \
    'for p in "The mill" "A" "Once there was"; do call 0 generate --model hf --prompt "$p" --max-new-tokens 12 && cat out; done >alone &&
     call 0 generate --model hf --prompt "The mill" --prompt "A" --prompt "Once there was" --max-new-tokens 12 &&
     python3 -I -c "
import json
rows = [json.loads(line) for line in open(\"out\")]
assert [row[\"prompt\"] for row in rows] == [\"The mill\", \"A\", \"Once there was\"]
assert \"\".join(row[\"text\"] + \"\\n\" for row in rows) == open(\"alone\", errors=\"replace\").read()"'
warm='generate --model hf --prompt "The mill" --max-new-tokens 24 --temperature 1.5 --top-p 0.95'
ok '  a seed gives one text' eval "call 0 $warm --seed 3 && mv out first && call 0 $warm --seed 3 && cmp out first"
ok '  more than the model has positions for is said' eval \
    'call 0 generate --model hf --prompt "The mill" --max-new-tokens 9999 && has "9999 new tokens .*model.s [0-9]+ positions" err'
# chat_stops: the layout of --chat is that of the raw prompt, and the text of a seed (of 50) stops where the other goes on with <|eot_id|>
chat_stops() {
    local seed kept raw=$'<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n'
    local hot='--temperature 9 --max-new-tokens 200 --seed'
    for seed in {1..50}; do
        call 0 generate --model hf --prompt "$raw" $hot $seed && mv out whole && call 0 generate --model hf --chat --prompt Hi $hot $seed || return 1
        cmp -s out whole && continue
        kept=$(($(wc -c <out) - 1))
        cmp -n $kept out whole && [ "$(tail -c +$((kept + 1)) whole | head -c 10)" = '<|eot_id|>' ]
        return
    done
    return 1
}
ok 'generate --chat: the layout of the model, to the end of the turn' chat_stops
ok '  its name, where the model has no template' has 'chat template: llama3; the model has none' err
ok '  not without its markers' eval 'call 65 generate --chat --model "$fixtures/gpt2/model" --prompt a && has "E0464" err'
ok '  a model that is an adapter' eval 'call 66 generate --model "$fixtures/llama/lora" --prompt a && has "E0303.*is an adapter" err && has "help: .*--adapter .*/lora" err'
ok '  which prompt is too long' eval \
    'call 65 generate --model hf --prompt A --prompt "$(printf "the mill %.0s" {1..3000})" --max-new-tokens 4 && has "E0463" err && has "prompt 2 of 2" err'
ok '  another seed another' eval "call 0 $warm --seed 4 && ! cmp -s out first"

# --- adapters ---
base=$fixtures/llama/model
lora=$fixtures/adapters/llama-patterns
ok 'merge' call 0 merge --base "$base" --adapter "$lora" -o merged
ok '  in the type of the base, its tokenizer beside it' eval \
    'head -c 2000 merged/model.safetensors | grep -q "\"dtype\": *\"BF16\"" && cmp "$base/tokenizer.json" merged/tokenizer.json'
ok '  over a merge of ours, in another type' call 0 merge --base "$base" --adapter "$lora" -o merged --dtype fp32
ok 'generate --adapter' call 0 generate --model "$base" --adapter "$lora" --prompt "The mill" --max-new-tokens 24
mv out adapted
ok 'a run goes on from it, and says whose it was' eval 'call 0 --job job.toml --set model.path="$base" --set lora.path="$lora" --set job.output_dir=further --set train.max_steps=1 && has "lora.path was made for .*goes on with" err'
ok '  as from the merged model' eval 'call 0 generate --model merged --prompt "The mill" --max-new-tokens 24 && cmp out adapted'
ok '  not as from the base' eval 'call 0 generate --model "$base" --prompt "The mill" --max-new-tokens 24 && ! cmp -s out adapted'
cksum merged/* >before
ok 'into the folder of the base: refused' eval 'call 73 merge --base merged --adapter "$lora" -o merged/ && has "E0314.*--base" err && cksum merged/* | cmp - before'
ok '  into that of the adapter' eval 'cp -r "$lora" mine && call 73 merge --base "$base" --adapter mine -o mine && has "E0314.*--adapter" err'
ok 'a weight, where modules are saved whole' eval 'call 65 merge --base "$base" --adapter "$lora=0.5" -o no && has "E0324.*patterns" err && [ ! -e no ]'
ok 'an adapter of another base' eval 'call 65 merge --base "$fixtures/qwen3/model" --adapter "$lora" -o no && has "E032[23]" err && [ ! -e no ]'
ok 'an adapter that is not there' eval 'call 66 merge --base "$base" --adapter none -o no && has "none/adapter_config.json" err'
ok 'a weight that is no number' eval 'call 64 merge --base "$base" --adapter "$lora=much" -o no && has "DIR=WEIGHT" err'
odd=$fixtures/llama_odd/model
cp -r "$fixtures/adapters/llama_odd-head" head
ok 'two adapters of one head, whose weights PEFT writes beside them' call 0 merge --base "$odd" --adapter head=2 --adapter head=-1 -o twice
ok '  add up' eval 'call 0 merge --base "$odd" --adapter head -o once --dtype bf16 && call 0 merge --base "$odd" --adapter head=2 --adapter head=-2 -o none --dtype bf16 &&
    call 0 merge --base "$odd" --adapter head=0 -o zero --dtype bf16 && cmp none/model.safetensors zero/model.safetensors && ! cmp -s once/model.safetensors zero/model.safetensors'
ok 'two adapters that save one module' eval 'call 65 merge --base "$base" --adapter "$lora" --adapter "$lora" -o no && has "E0324.*both save" err && [ ! -e no ]'

# --- a checkpoint of adapters ---
sed -e "s|^path = \"tests/fixtures|path = \"$fixtures|" -e 's/^max_steps.*/max_steps = 2/' "$fixtures/llama/job.toml" >lora.toml
printf '[lora]\nenabled = true\nr = 4\n[checkpoint]\nexport = "hf"\n' >>lora.toml
ok 'a run of adapters' call 0 --job lora.toml --set job.output_dir=tuned --set optim.learning_rate=0.05
a=tuned/checkpoint-000002
ok '  its banner' eval 'has "^  adapters LoRA, r 4 on \"all-linear\"$" err && has "^  model .*trained, the others in fp32" err'
ok '  its first event' eval 'head -1 tuned/events.jsonl | grep -q "\"trainable_parameters\":.*\"base_format\":\"fp32\".*\"r\":4"'
ok '  what trains and what there is, in all three' eval 'head -1 tuned/events.jsonl | grep -q "\"trainable_parameters\":5056,\"all_parameters\":47200," &&
    grep -q "\"trainable_parameters\": *5056\b" tuned/status.json && grep -q "\"all_parameters\": *47200\b" tuned/status.json &&
    "$(dirname "$zerod")/ctl/zerodctl" --dir tuned status -o json >told && grep -q "\"trainable_parameters\": *5056\b" told && grep -q "\"all_parameters\": *47200\b" told'
ok '  its status' eval 'grep -q "\"base_format\": *\"fp32\"" tuned/status.json && grep -q "\"target_modules\": *\"all-linear\"" tuned/status.json'
ok '  ckpt show' eval 'call 0 ckpt show $a && has "^params .* of them trained" out && has "^adapter  LoRA, r 4 on" out && has "^base .*held in fp32" out'
ok 'export of its checkpoint: the adapter' eval 'call 0 export $a -o tuned-peft && [ -s tuned-peft/adapter_config.json ] && [ ! -e tuned-peft/model.safetensors ]'
ok 'export --merge: the model, as the run wrote it' eval 'call 0 export $a -o tuned-hf --merge && cmp tuned/hf/model.safetensors tuned-hf/model.safetensors'
ok '  a job goes on from its own adapter' call 0 validate --job lora.toml --set lora.path=tuned-peft --set 'lora.target_modules="all-linear"' --set lora.lora_alpha=32
ok '  but not to other modules' eval 'call 78 validate --job lora.toml --set lora.path=tuned-peft --set "lora.target_modules=[\"q_proj\"]" && has "E0326.*target_modules" err'
ok '  nor by another factor' eval 'call 78 validate --job lora.toml --set lora.path=tuned-peft --set lora.use_rslora=true && has "E0326.*use_rslora" err'
ok '  as zerod merge has it' eval 'call 0 merge --base "$base" --adapter tuned-peft -o tuned-too --dtype fp32 && cmp tuned-hf/model.safetensors tuned-too/model.safetensors'
ok '  onto a base by name' eval 'cp -r "$base" moved-base && call 0 export $a -o tuned-3 --merge --base moved-base && cmp tuned-hf/model.safetensors tuned-3/model.safetensors'
ok '  onto another one' eval 'call 65 export $a -o no --merge --base "$fixtures/qwen3/model" && [ ! -e no ]'
ok '  onto one of the same shapes' eval 'call 65 export $a -o no --merge --base tuned-hf && has "E0327.*tuned-hf" err && [ ! -e no ]'
ok '  in codes' eval 'call 0 export $a -o tuned-nf4 --merge --quantize nf4 && grep -q bitsandbytes tuned-nf4/config.json'
ok 'export --merge of a whole model' eval 'call 65 export $c -o no --merge && has "E0328.*not an adapter" err && [ ! -e no ]'

# --- the rest of the run ---
ok 'the run goes on to its end' call 0 --job job.toml --resume auto
ok '  from step 2' eval '! has "^step [12]/3" err && has "^step 3/3" err && [ -s run/hf/model.safetensors ]'
ok '  rows that were there are not rewritten' eval '[ $(wc -l <run/metrics.jsonl) = 3 ]'
ok '  with fewer steps than it has made it is finished' eval 'call 0 --job job.toml --max-steps 1 && has "^this run is finished: .* is at step [0-9]+, the last is 1$" err'
ok '  its report has the phases of all of them' eval 'tr -d " " <run/report.html | grep -q "\"perf/forward\":{\"step\":\[1,2,3\]"'
ok 'a finished run says so' call 0 --job job.toml
ok 'never, where there are checkpoints' eval 'call 0 --job job.toml --resume never && has "begins anew at step 0: it replaces" err'
ok 'what to type next is quoted' eval 'call 0 --job job.toml --set job.output_dir="a b" --max-steps 1 &&
    has "^  next +zerod generate --model .a b/hf. --prompt" err && rm -r "a b"'

# --- what data are called ---
mkdir -p deep/er && cp data.txt 'deep/a[1].txt' && cp data.txt deep/er/b.txt
for path in 'deep/a[1].txt' 'deep/{er/b,none}.txt' 'deep/**/*.txt' 'deep/*/?.txt'; do
    sed "s|^path = \"data.txt\"|path = \"$path\"|" job.toml >paths.toml
    ok "validate: $path is there" call 0 validate paths.toml
done
ok 'a run on folders at any depth' eval 'call 0 --job paths.toml --set data.train="[{path = \"deep/**\"}]" --max-steps 1 --set job.output_dir=deeply &&
    has "^tokenized deep/\*\*: [0-9]+ tokens in 2 documents" err && rm -r deeply'
mv model/tokenizer.json kept.json
ok 'tokenizer = "bytes" asks for bytes' eval 'call 0 --job job.toml --set model.tokenizer=bytes --max-steps 1 --set job.output_dir=inbytes &&
    has "^  text +bytes, 256 is end of text" err'
ok '  and generate takes them without a word, unless nothing names them' eval 'call 0 generate --model inbytes/hf --prompt a --max-new-tokens 2 && ! has "no tokenizer.json" err &&
    cp -r inbytes/hf unnamed && rm unnamed/tokenizer_config.json && call 0 generate --model unnamed --prompt a --max-new-tokens 2 && has "^warning: unnamed has no tokenizer.json" err && rm -r unnamed'
ok '  and its export is trained again without another word' eval 'call 0 --job job.toml --set model.path=inbytes/hf --max-steps 1 --set job.output_dir=again &&
    has "^  text +bytes, 256 is end of text" err && [ -s again/hf/tokenizer_config.json ] && rm -r inbytes again'
mv kept.json model/tokenizer.json

# --- conversations ---
cat >chat.jsonl <<'JSON'
{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}
{"messages": [{"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "Ho ho, and a longer one"}]}
JSON
sed 's|^path = "data.txt"|path = "chat.jsonl"|; s|^cutoff_len = .*|cutoff_len = 28|' job.toml >chat.toml
ok 'conversations that packing cuts are told before step 1' eval 'call 0 --job chat.toml --set data.packing=true --set data.cutoff_len=20 --max-steps 1 --set job.output_dir=cut && rm -r cut &&
    has "^warning: chat.jsonl: packing into samples of 20 tokens cuts [12] of 2 documents; [0-9]+ of [0-9]+ trained tokens" err &&
    cp err told && call 0 validate chat.toml --set data.packing=true --set data.cutoff_len=20 && cmp <(grep packing told) err'
yes "{\"prompt\": \"ab\", \"completion\": \"$(printf %0400d)\"}" | head -13000 >far.jsonl
echo "{" >>far.jsonl
sed 's|^path = "data.txt"|path = "far.jsonl"|' job.toml >far.toml
mkdir temporary # its own: other tests validate at the same time
ok 'validate reads the beginning of long data' eval 'TMPDIR=$PWD/temporary call 0 validate far.toml && has "^far.toml: valid .*first 10000 records.*--all reads all" out && [ -z "$(ls -A temporary)" ]'
ok '  --all all of it' eval 'call 65 validate far.toml --all && has "far.jsonl:13001:" err'
talk="--job chat.toml --set data.packing=false --set job.output_dir=talk --max-steps 1"
inspect="data inspect --job chat.toml --set data.packing=false --set data.cutoff_len=64"
ok 'what cutoff_len cuts is said, and which template is used' eval 'call 0 $talk &&
    has "^chat.jsonl: data.cutoff_len = 28 cuts [12] of 2 documents; [0-9]+ of their [0-9]+ tokens are left out" err &&
    has "^  text .*, chat template llama3" err && has "next .*zerod generate --model talk/hf --chat --prompt" err &&
    has "^  step +.* samples? of [0-9]+ tokens = [0-9]+ tokens$" err && rm -r talk'
ok 'prompts of the job are messages' eval 'call 0 $talk --set sample.steps=1 --set sample.chat=true --set "sample.prompts=[\"Hi\"]" --set checkpoint.export=none &&
    has "\"prompt\":\"Hi\".*\"chat\":true" talk/events.jsonl && "$ctl" --dir talk samples >out && has "^> Hi$" out && rm -r talk'
ok '  one that is too long ends the start' eval 'call 65 $talk --set sample.chat=true --set "sample.prompts=[\"$(printf "mill %.0s" {1..900})\"]" && has "E0463" err && rm -rf talk'
mkdir -p templates/of/a/folder && echo "{% for m in messages %}{{ m.content }}{% endfor %}" >templates/of/a/folder/chat_template.jinja
ok "  the whole path of a template's file" eval 'call 0 $talk --set data.chat_template=templates/of/a/folder/chat_template.jinja --set data.train_on=all &&
    has "^  text .*, chat template templates/of/a/folder/chat_template.jinja$" err && has "next .*zerod generate --model talk/hf --prompt" err && rm -r talk'
echo "{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}" >dated.jinja
dated="--job chat.toml --set data.packing=false --set job.output_dir=dated --set data.chat_template=dated.jinja --set data.train_on=all --set checkpoint.export=none"
ok '  a resumed run keeps the day of the first start' eval 'call 0 $dated --max-steps 1 --set data.template_date=\"2020-02-02\" && call 0 $dated --max-steps 2 --resume must &&
    call 78 $dated --max-steps 3 --resume must --set data.template_date=\"2021-02-02\" && has "E0811.*data.template_date was .2020-02-02., is .2021-02-02" err && rm -r dated dated.jinja'
ok 'data inspect --count 0: the totals alone' eval 'call 0 $inspect --count 0 && has "^chat template llama3" out && ! has "^===" out'
ok 'data inspect --count' eval 'call 0 $inspect --count 1 && has "^chat template llama3" out && [ $(grep -c "^=== sample" out) = 1 ]'
ok 'data inspect --ids' eval 'call 0 $inspect --ids && grep -qE "^ +[0-9]+ \+ " out && grep -qE "^ +[0-9]+ - " out'
ok 'data inspect --format json' eval 'call 0 $inspect --format json && has "\"chat_template\": \"llama3\"" out && has "\"trained\": true" out && [ ! -s err ]'
ok 'data inspect --html' eval 'call 0 $inspect --html page.html && grep -q "<span class=.t.>" page.html && [ ! -s out ]'
losses() { grep -o '"loss":[0-9.]*' "$1/metrics.jsonl"; }
grow='--job job.toml --set data.shuffle=windows --set data.cache_dir=grown --set checkpoint.export=none --set checkpoint.save_strategy=no'
ok 'text is tokenized while it is trained on' eval 'call 0 $grow --set job.output_dir=grow1 && has "^data.txt is tokenized while" err'
ok '  the next start takes the same samples from the cache' eval 'call 0 $grow --set job.output_dir=grow2 && ! has "tokenized" err && cmp <(losses grow1) <(losses grow2) && rm -r grow1 grow2'
# own TEMPLATE: the model has a chat template of its own
own() { { printf '{"chat_template": "%s",\n' "$1"; tail -n +2 tokenizer_config.was; } >model/tokenizer_config.json; }
cp model/tokenizer_config.json tokenizer_config.was
turn="'<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content|trim + '<|eot_id|>'"
own "{{ '<|begin_of_text|>' }}{% for m in messages %}{{ $turn }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
named="$inspect --set data.chat_template=llama3"
ok 'a template of the model that is the same is no news' eval 'call 0 $named && ! has warning err && cp out named'
ok '  it is what "auto" takes, with the same ids and mask' eval 'call 0 $inspect && has "^chat template model/tokenizer_config.json" out && cmp <(grep -v "^chat template" named) <(grep -v "^chat template" out)'
own "{% for m in messages %}[{{ m.content }}]{% endfor %}"
ok '  one that is another is told of once' eval 'call 0 $named && has "^warning: data.chat_template = .llama3. renders conversations differently from the model.s own template" err && [ $(grep -c warning: err) = 1 ]'
own "{{ raise_exception('no system') }}"
ok '  one that refuses conversations is another; "auto" repeats its words' eval 'call 0 $named && has "renders conversations differently" err &&
    call 65 $inspect && has "E0415.*: the chat template refuses the conversation: no system" err && has "chat.jsonl:1" err'
own '{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}'
ok '  one that would never end: 65, by name' eval 'call 65 $inspect && has "E0414.*: the chat template (takes|makes) more than" err &&
    call 65 $talk && has E0414 err && call 65 validate chat.toml && has E0414 err && call 65 validate chat.toml --all && has E0414 err'
own "{% for m in messages %}$turn{% endfor %}" # in place of one that reads tools
cat >more.jsonl <<'JSON'
{"messages": [{"role": "user", "content": "<|eot_id|>Hi<|eot_id|>"}, {"role": "assistant", "content": "Ho", "thinking": "hm"}]}
{"tools": [{"function": {"name": "f"}}], "messages": [{"role": "user", "content": "Hi"}]}
{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]}]}
{"tools": [{"function": {"name": "f"}}], "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}, {"role": "assistant", "content": "Ho", "train": false}]}
JSON
cat >warned <<'TEXT'
warning: more.jsonl: the chat template model/tokenizer_config.json ignores tools (2 rows, first more.jsonl:2), tool_calls (1 row, first more.jsonl:3), reasoning_content (1 row, first more.jsonl:1); data.chat_template = "PATH" uses another template, and without these keys the rows are the same
warning: more.jsonl: the chat template model/tokenizer_config.json does not read a content that is a list of parts (1 row, first more.jsonl:4): it leaves the text out or prints the list; `zerod data inspect` shows it
warning: more.jsonl: nothing of 2 rows is trained (first: more.jsonl:2); `zerod data inspect` shows what the loss counts, and data.train_on decides it
TEXT
more='--set data.train=[{path="more.jsonl"}] --set data.cutoff_len=64 --set checkpoint.export=none'
for what in 'validate chat.toml' 'validate chat.toml --all' "$talk" "$inspect" "$talk --resume never"; do
    ok "  keys that a template ignores, and rows that train nothing, are told: $what" eval 'call 0 $what $more && cmp warned <(grep "^warning: more" err)'
done
rm -r talk
ok "  special tokens in messages are counted" eval 'call 0 $inspect $more && has "^2 special tokens are written in messages of 1 row .first: more.jsonl:1.$" out &&
    call 0 $inspect $more --format json && has "\"special_tokens\": 2," out && has "\"untrained\"" out'
own "{{ messages|groupby('role') }}"
ok '  and one with a filter that is not supported' eval 'call 65 $inspect && has "E0416.*groupby" err && call 0 $named && has "renders conversations differently" err'
cp tokenizer_config.was model/tokenizer_config.json
ok 'markers of a template that are no tokens are told' eval 'call 0 $inspect --set data.chat_template=qwen --set data.cutoff_len=64 --count 0 && has "chat_template = .qwen. writes <.im_start.>, <.im_end.>, which the tokenizer .byte-level BPE, 495 tokens" err'

# --- what a run says of itself ---
brief='--job job.toml --set job.output_dir=told --set checkpoint.export=none --set checkpoint.save_strategy=no'
ok 'a run with everything on NVMe' eval 'rm -rf told && call 0 $brief --set offload.optimizer=nvme --set offload.params=nvme \
    --set offload.nvme_path=. --set offload.threads=1 --set optim.name=adamw_bnb_8bit --set train.dtype=bf16'
ok '  the optimizer as it was given and as it is read' has '^  optim +adamw_bnb_8bit: adamw_8bit, states in 8 bits .*fp32 master weights' err
ok '  what lives where, and who updates it' has '^  offload +states on the disk, parameters on the disk; updates by 1 thread, ' err
ok '  the file, its room and how it is read' has '^  file +[0-9.]+ [KMG]iB per rank in \.' err
ok '  the disk beside the memory' has '^  memory .* device \+ .* host \+ .* disk per rank' err
ok '  what the disk moved, and what was waited for' has '^  offload +a step: .*disk .*B read, .*B written .*disk [0-9.]+, up' err
ok '  the rows have it too' eval '[ $(grep -c "\"wait_seconds\":{\"down\":.*\"disk\":" told/metrics.jsonl) = 3 ]'
ok '  every row has the bytes of its own step' eval \
    '[ $(sed -n "s/.*\"down_bytes\":\([0-9]*\),\"up_bytes\":\([0-9]*\).*/\1 \2/p" told/metrics.jsonl | sort -u | wc -l) = 1 ]'
ok 'a run on the device says the optimizer only' eval 'rm -rf told && call 0 $brief && has "^  optim +adamw, states in fp32, no master weights$" err && ! has "^  (offload|file) " err'
ok 'what auto became' eval 'rm -rf told && call 0 $brief --set train.gradient_checkpointing=auto --set train.gradient_accumulation_steps=2 \
    --set train.global_batch_size=4 --set offload.optimizer=cpu && has "^  auto +train.gradient_checkpointing = \"none\", offload.accumulate = \"device\"" err'
ok '  the order of the micro-batches' has '^  order +micro-batches depth_first \(train.accumulation_order\)$' err
ok 'an order of one micro-batch' eval 'rm -rf told && call 0 $brief --set train.accumulation_order=breadth_first &&
    has "^  note +train.accumulation_order changes nothing: a step has one micro-batch$" err && ! has "^  order " err'
ok '  and with less memory' eval 'call 0 plan --job job.toml --world 1 --set train.gradient_checkpointing=selective --format json &&
    limit=$(sed -n "/\"name\": \"device\"/{n;s/.*: \([0-9]*\).*/\1/p;q}" out) && rm -rf told && call 0 $brief --set train.gradient_checkpointing=auto \
    --set device.memory_limit=$limit && has "^  auto +train.gradient_checkpointing = \"selective\"" err'
ok 'activations that stay where they are' eval 'rm -rf told && call 0 $brief --set train.gradient_checkpointing=full --set offload.activations=cpu &&
    has "^  note +offload.activations moves nothing" err && ! has "a step:" err'
ok 'updates that were taken back' eval 'rm -rf told && call 0 $brief --set offload.optimizer=cpu --set offload.clipping=undo --set optim.max_grad_norm=1e-6 &&
    has "^  undone +3 of 3 updates: offload.clipping = \"wait\"" err'
ok '  and that were not' eval 'rm -rf told && call 0 $brief --set offload.optimizer=cpu --set offload.clipping=undo --set optim.max_grad_norm=0 \
    --set log.step_breakdown=true && has "^  undone +0 of 3 updates\$" err'
ok '  what nothing hid, of a step and in the mean' eval 'has "^     exposed: update [0-9.]+  gathers 0.0  copies [0-9.]+  launches 0.0\$" err &&
    has "^  exposed +update [0-9.]+  gathers 0.0  copies [0-9.]+  launches 0.0 ms of a step\$" err && [ $(grep -c "\"exposed_seconds\":{\"update\":" told/metrics.jsonl) = 3 ]'
ok 'a checkpoint of fp16' eval 'rm -rf told && call 0 --job job.toml --stop-after 1 --set job.output_dir=told --set train.dtype=fp16 &&
    call 0 ckpt show told/checkpoint-000001 && has "^scale +loss x [0-9]+, good steps [01]" out'
ok '  and other states: the name that was changed is told' eval 'call 0 --job job.toml --stop-after 2 --set job.output_dir=told --set train.dtype=fp16 --set optim.name=adamw_8bit &&
    has "resuming with optim.name = \"adamw_8bit\" \(was \"adamw\"\)" err'

# --- a job that does not fit (that what a refusal names fits: test_plan.sh) ---
tight='--job job.toml --stop-after 1 --set train.gradient_checkpointing=none --set device.memory_limit'
ok 'a smaller micro-batch and its accumulation are named' eval 'call 69 $tight=1500KB --set train.per_device_train_batch_size=8 --set job.output_dir=fit &&
    has "--set train.per_device_train_batch_size=[124] --set train.gradient_accumulation_steps=[248] " err'
ok 'too little host memory' call 69 $tight=1GiB --set device.host_memory_limit=1KB --set job.output_dir=fit
ok '  names spans of the host' eval 'has "largest spans: train.batches" err'
ok 'too little host memory for offload' eval \
    'call 69 plan --job "$fixtures/../program/fit_gpt2_xl.toml" --world 1 --set device.host_memory_limit=8GiB && cp err refused'
ok '  NVMe is named, with the room that it needs' has '--set offload.optimizer=nvme --set offload.nvme_path=FOLDER .* free in FOLDER' refused

# --- no end of text ---
mkdir bare && cp "$fixtures/tokenizers/llama3/tokenizer.json" bare
sed '/^path = "model"/d; /^dtype = "fp32"/d' job.toml >random.toml
cat >>random.toml <<'TOML'
[model.config]
model_type = "llama"
hidden_size = 32
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 32
vocab_size = 600
TOML
ok 'a model that names no end of text has none' eval \
    'call 0 --job random.toml --stop-after 1 --set model.tokenizer=bare --set job.output_dir=bare-out && has "no end-of-text token" err'

# --- data ---
ok 'data inspect' eval 'call 0 data inspect --job job.toml && has "daughter" out && plain'
mkdir mixed && cp data.txt mixed && echo '{"text": "one"}' | tee mixed/a.jsonl >mixed/b.jsonl
for what in 'validate job.toml' 'data inspect --job job.toml'; do
    ok "files of a folder that are of another kind are told: $what" eval 'call 65 $what --set data.train=[{path=\"mixed\"}] &&
        has "^warning: mixed: 1 file of another kind is not read \(first: mixed/data.txt\)" err'
done
# --- the command line itself ---
ok 'half a command: the whole ones are listed' eval 'call 64 ckpt --help && has "help: .zerod ckpt ls., .zerod ckpt show., .zerod ckpt verify.$" err'
while read -r words; do
    ok "64: zerod $words" eval "call 64 $words && [ ! -s out ] && [ \$(grep -c '^error\[E0101\]: ' err) = 1 ] && [ \$(grep -c ^error err) = 1 ]"
done <<'ROWS'
ckpt list run
ckpt
data
data tokenise x
export run/checkpoint-000002
export run/checkpoint-000002 -o
export run/checkpoint-000002 -o x --dtype int8
generate --model model
generate --prompt x
generate --model model --prompt x --temperature warm
generate --model model --prompt x --top-p 0
generate --model model --prompt x --top-p 2
generate --model model --prompt x --temperature -1
generate --model model --prompt x --max-new-tokens 0
plan --job job.toml --world -1
plan --world 2
plan job.toml --job job.toml --world 2
validate job.toml --set =5
validate job.toml --set train.max_steps
--job
--job job.toml --stop-after x
--job job.toml --stop-after -1
--job job.toml --max-steps 0
--job job.toml extra
validate
validate job.toml wrong.toml
validate job.toml --world 0
validate job.toml --wrold 2
run --job
run --job=job.toml -q --no-progress=1
ROWS
ok 'nothing to do: 64' eval 'call 64 && [ ! -s out ] && [ $(grep -c ^error err) = 1 ]'
for words in --help 'ckpt ls --help' --version; do ok "zerod $words" eval "call 0 $words && [ -s out ] && [ ! -s err ]"; done
printf '[x' >broken.toml; mkfifo fifo gone; echo short >short.txt
while IFS='|' read -r code words said; do
    ok "$code: zerod $words" eval "call $code $words && [ \$(grep -c ^error err) = 1 ] && has '$said' err"
done <<'ROWS'
65|validate .|E0703
65|validate fifo|E0703
65|data inspect job.toml --set 'data.train=[{path="short.txt"}]'|E04
66|generate --model nowhere --prompt x|nowhere
66|export nowhere -o out|nowhere
66|ckpt show nowhere|nowhere
78|--job broken.toml|E0201.*TOML
ROWS
ok 'another name of a key is noted' eval 'call 0 validate job.toml --set optim.lr=1 && has "^note: .lr. in .optim. is read as .learning_rate." err'
ok '  and of an optimizer' eval 'call 0 validate job.toml --set optim.name=paged_adamw && has "is read as .paged_adamw_32bit." err'
for to in '>/dev/full' '>&-' '>&4'; do
    ok "validate --print $to: 74" eval "exec 3<>gone 4>gone 3<&-; '$zerod' validate job.toml --print 2>err $to; [ \$? = 74 ] && [ \$(grep -c ^error err) -le 1 ]"
done

# --- readers that go away ---
for words in 'validate job.toml --print' 'plan --job job.toml --world 8 --format json' 'data inspect --job job.toml' \
    '--help' 'ckpt ls run'; do
    ok "zerod $words | head -1" eval \
        "{ timeout 100 \"$zerod\" $words 2>err; echo \$? >code; } | head -1 >line; [ -s line ] && ! grep -q '^error' err && [ \$(cat code) -lt 124 ]"
done
tests_end
