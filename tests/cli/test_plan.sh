#!/usr/bin/env bash
# What `zerod plan` says, and that it is so: the changes that a refusal suggests fit, and a run moves what was planned.
#   test_plan.sh ZEROD SOURCE       prints TAP
fixtures=$2/tests/fixtures
. "$2/tests/cli/lib.sh"
export XDG_CACHE_HOME=$PWD/xdg # empty: without a calibration

for i in 1 2 3 4 5 6 7 8; do echo "The miller's daughter kept the accounts of the mill better than her father had, line $i."; done >data.txt
# job LAYERS: a model of so many; 64 wide, vocabulary 4096
job() { sed "s/^num_hidden_layers = 8/num_hidden_layers = $1/" "$fixtures/../cli/plan.toml"; }
job 8 >job.toml

# --- adapters on a base in codes ---
# A layer has 65,536 weights in linear modules: q, k, v, o of 64 x 64, gate, up, down of 64 x 256. So codes of 4 bits are 32,768
# bytes, scales of blocks of 64 are 4,096, and adapters of r = 16 have 4 x 16 (64 + 64) + 3 x 16 (64 + 256) = 23,552 elements.
spans() { # FILE: the bytes of each kind, of rank 0
    python3 -I -c 'import json, sys
spans = {span["name"]: span["bytes"] for arena in json.load(open(sys.argv[1]))["ranks"][0]["arenas"] for span in arena["spans"]}
print(*(spans.get("zero." + name, 0) for name in ("base.codes", "base.scales", "adapters", "master")))' "$1"
}
codes=(--set lora.enabled=true --set lora.quantize_base=nf4 --set lora.double_quant=false)
ok 'quantized weights, scales and masters of adapters are separate spans' eval 'call 0 plan --job job.toml --world 1 --format json "${codes[@]}" &&
    [ "$(spans out)" = "$((8 * 32768)) $((8 * 4096)) $((8 * 4 * 23552)) 0" ]'
ok '  sharded at stage 3' eval 'call 0 plan --job job.toml --world 2 --format json "${codes[@]}" --set zero.stage=3 &&
    [ "$(spans out)" = "$((4 * 32768)) $((4 * 4096)) $((4 * 4 * 23552)) 0" ]'
ok '  and a run takes them' eval 'rm -rf run && call 0 --job job.toml --max-steps 1 "${codes[@]}" &&
    [ "$(spans run/plan.json)" = "$((8 * 32768)) $((8 * 4096)) $((8 * 4 * 23552)) 0" ] &&
    python3 -I -c "import json
for arena in json.load(open(\"run/plan.json\"))[\"ranks\"][0][\"arenas\"]: assert arena[\"planned_bytes\"] == arena[\"taken_bytes\"], arena"'
rm -rf run

# --- text that is tokenized while it is trained on ---
# 8 MiB for each of 16 threads, 6 MiB for the reader and 28 MiB for a long record, of which each rank of the host has its part.
tokenizer() { python3 -I -c 'import json; print(json.load(open("out")).get("tokenizer_bytes", {}).get("host"))'; }
growing=(--set data.shuffle=windows --set data.packing=true)
ok 'the plan counts what tokenizing takes while it trains' eval 'call 0 plan --job job.toml --world 2 --format json "${growing[@]}" &&
    [ "$(tokenizer)" = $((162 * 1048576 / 2)) ] && cp out with && call 0 plan --job job.toml --world 2 --format json && [ "$(tokenizer)" = None ] &&
    python3 -I -c "import json
a, b = (json.load(open(name))[\"phases\"][\"train\"][\"host\"] for name in (\"with\", \"out\"))
assert a - b == 162 * 1048576 // 2, a - b"'

truncate -s 1G large.txt
large() { call 0 plan --job job.toml --world 1 --set 'data.train=[{path="large.txt"}]' "$@"; }
waits() { large "${@:2}" && has "^all text is tokenized before step 1: $1" out; }
ok 'large text waits where an epoch is counted' waits "an epoch's length" --set eval.eval_strategy=epoch --set 'data.eval=[{path="data.txt"}]'
ok '  with documents packed whole' waits 'whole documents' --set data.packing=documents
ok '  with a part for evaluation' waits 'the last samples' --set data.val_split=0.1
ok '  shuffled as a whole' waits 'data.shuffle = "windows" is not set' --set data.shuffle=true
ok '  and else does not' eval 'large && ! has "^all text is tokenized" out'
printf '%s\n' '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' '{}' >large.jsonl && truncate -s 1G large.jsonl
ok '  and a start says so' eval 'call 65 --job job.toml --max-steps 1 --set "data.train=[{path=\"large.jsonl\"}]" --set data.chat_template=chatml &&
    has "large.jsonl is tokenized before step 1: whole documents" err && has "large.jsonl:2" err'
rm large.txt large.jsonl

# --- what a refusal suggests ---
# device NAME: planned bytes of that memory
planned() { sed -n "/\"name\": \"$1\"/{n;s/.*: \([0-9]*\).*/\1/p;q}" out; }
suggested() { sed -n 's/^  = help: \(--set .*[^ ]\)   (.*/\1/p' "${1:-err}"; }
# All that the plan of job.toml with SETTING... at WORLD ranks and a share of its device memory says: each line fits.
each_fits() { # WORLD PERCENT SETTING...
    local world=$1 percent=$2 line count=0 limit
    shift 2
    call 0 plan --job job.toml --world "$world" --format json "$@" || return 1
    limit=$(($(planned device) * percent / 100))
    call 69 plan --job job.toml --world "$world" "$@" --set device.memory_limit=$limit || return 1
    cp err refused
    while read -r line; do
        # shellcheck disable=SC2086
        call 0 plan --job job.toml --world "$world" "$@" --set device.memory_limit=$limit $line || return 1
        count=$((count + 1))
    done < <(suggested refused)
    [ $count -ge 1 ]
}
for world in 1 2; do
    for percent in 85 60 35 28; do
        for settings in '' '--set optim.name=lion' '--set optim.name=paged_adamw_32bit' '--set optim.state_dtype=bf16' '--set optim.state_dtype=fp32' \
            '--set optim.name=sgd' '--set zero.stage=1' '--set offload.optimizer=cpu --set zero.stage=3' \
            '--set train.gradient_accumulation_steps=2' '--set offload.nvme_path=some/folder'; do
            case "$percent$settings" in *85*paged* | *60*paged* | *85*offload.opt* | *35*paged* | *28*offload.opt*) continue ;; esac # these fit
            # shellcheck disable=SC2086
            ok "$world ranks, $percent % of the device, $settings: what is suggested fits" \
                each_fits $world $percent --set train.gradient_checkpointing=none $settings
        done
    done
done
# Paged states need the limit that is left with all of them away.
call 0 plan --job job.toml --world 1 --format json --set offload.optimizer=cpu --set train.gradient_checkpointing=full
limit=$(($(planned device) + 500000))
ok 'a paged optimizer that does not fit even with all states on the host' call 69 plan --job job.toml --world 1 \
    --set device.memory_limit=$limit --set optim.name=paged_adamw_32bit --set train.gradient_checkpointing=full
ok '  offload is suggested' has '^  = help: --set offload.optimizer=cpu   \(device' err
# With states in 8 bits, or with half of them away: names alone.
name() { suggested | grep -c -x -e "--set optim.name=$1"; }
job 48 >deep.toml
call 0 plan --job deep.toml --world 1 --format json --set train.gradient_checkpointing=full
limit=$(($(planned device) * 9 / 10))
ok 'a plain optimizer that would fit if it were paged, or in 8 bits' eval \
    'call 69 plan --job deep.toml --world 1 --set device.memory_limit=$limit --set train.gradient_checkpointing=full &&
     [ "$(name adamw_8bit) $(name paged_adamw_32bit)" = "1 1" ]'
ok 'no paging is suggested where only the host is short' eval \
    'call 69 plan --job job.toml --world 1 --set device.memory_limit=1GiB --set device.host_memory_limit=1KB && ! has paged_ err'
# Just too little for all states away: a chunk of 8-bit states takes less of the device on its way.
call 0 plan --job job.toml --world 1 --format json --set optim.name=sgd --set optim.momentum=0 --set train.gradient_checkpointing=full
bare=$(planned device) paged_8bit=0 plain_8bit=0 refusals=0
for kib in 4 16 64 256 1024; do
    call 69 plan --job job.toml --world 1 --set device.memory_limit=$((bare + kib * 1024)) --set optim.name=paged_adamw_32bit \
        --set train.gradient_checkpointing=full || continue
    refusals=$((refusals + 1))
    paged_8bit=$((paged_8bit + $(grep -c optim.name=paged_adamw_8bit err)))
    plain_8bit=$((plain_8bit + $(grep -c optim.name=adamw_8bit err)))
done
ok 'for a paged optimizer paged 8-bit states are suggested' eval '[ $refusals -ge 1 ] && [ $paged_8bit -ge 1 ] && [ $plain_8bit = 0 ]'

# --- what would fit ---
fitted=(plan --job job.toml --world 2 --device-memory 6MiB --host-memory 64MiB)
arguments() { sed -n 's/.*"arguments": "\(.*\)",*$/\1/p' "${1:-out}"; }
ok '--fit finds changes for a refused job' eval 'call 69 "${fitted[@]}" && call 0 "${fitted[@]}" --fit --format json && [ $(arguments | wc -l) -ge 3 ]'
arguments >lines
ok '  each is accepted' eval 'while read -r line; do call 0 "${fitted[@]}" $line || exit 1; done <lines'
ok '  the fastest first' eval 'call 0 "${fitted[@]}" --fit --format json && sed -n "s/.*\"step_seconds\": \([0-9.e-]*\),*/\1/p" out >times &&
    sort -g times | diff times -'
saves=(--job job.toml --world 1 --set checkpoint.save_strategy=steps --format json)
same_bytes() { # PATTERN: of the first fit that has it, and of the plan of it: all memories, with the copy that is saved in the background
    call 0 plan "${saves[@]}" --fit --allow lora && arguments | grep -m 1 -e "$1" >line && mv out fits && call 0 plan "${saves[@]}" $(cat line) && python3 -I -c 'import json
fit = next(fit["bytes"] for fit in json.load(open("fits"))["fits"] if fit["arguments"] == open("line").read().rstrip("\n"))
arenas = {a["name"]: a for a in json.load(open("out"))["ranks"][0]["arenas"]}
plan = {name: a["planned_bytes"] for name, a in arenas.items()}
assert any(s["name"] == "checkpoint.snapshot" for s in arenas["host"]["spans"]), arenas
assert fit == dict(plan, host=plan["host"] + plan["pinned"]), (fit, plan)'
}
ok '  in the bytes that a plan of it has' same_bytes ''
ok '  of adapters too' same_bytes lora.enabled=true
ok '  of offloaded states too' same_bytes offload.optimizer=cpu
ok '  on a disk only if it has room' eval 'call 0 "${fitted[@]}" --set offload.nvme_path=folder --fit --disk 1GB --format json && arguments | grep -q nvme &&
    call 0 "${fitted[@]}" --set offload.nvme_path=folder --fit --disk 4KB --format json && ! arguments | grep nvme'
ok '  in words' eval 'call 0 "${fitted[@]}" --fit && has "^ +[0-9.]+ s a step, .* binds; GiB: device 0.00[0-9], host" out && [ $(grep -c " s a step, " out) = 3 ] &&
    has "^[0-9]+ more are slower, or hardly differ" out && call 0 "${fitted[@]}" --fit --machine h100 --set device.backend=cpu && has "not compared with" out &&
    grep -A1 "masters and states are kept off the device" out | grep -q -- "--set offload.optimizer=cpu" && call 0 "${fitted[@]}" --fit --format json && has "\"words\": \".*activations are recomputed" out'
ok '  only allowed changes' eval '! grep -q "optim.state_dtype\|adamw_8bit\|train.dtype\|optim.master" lines &&
    call 0 "${fitted[@]}" --fit --allow optim --format json && arguments | grep -q adamw_8bit && ! arguments | grep -q train.dtype'
ok '  adapters where they are allowed' eval 'call 0 "${fitted[@]}" --fit --allow lora --format json && arguments >adapted && grep -q "lora.enabled=true" adapted &&
    ! grep -q lora lines && grep lora adapted | head -n 3 >lines2 && while read -r line; do call 0 "${fitted[@]}" $line || exit 1; done <lines2'
ok '  on a model in 4 bits, where that is allowed too' eval '! grep -q quantize adapted && call 0 "${fitted[@]}" --fit --allow lora,quantize --format json &&
    arguments | grep "quantize_base=nf4" | head -n 2 >lines2 && [ -s lines2 ] && while read -r line; do call 0 "${fitted[@]}" $line || exit 1; done <lines2'
ok '  of adapters: the model alone' eval 'call 0 "${fitted[@]}" --set lora.enabled=true --fit --allow quantize --format json && arguments | grep -q "quantize_base=nf4" &&
    ! arguments | grep lora.enabled && call 0 "${fitted[@]}" --fit --allow quantize --format json && ! arguments | grep quantize_base'
ok '  but not for a job that has them' eval 'call 0 "${fitted[@]}" --set lora.enabled=true --fit --allow lora,optim --format json && ! arguments | grep lora.enabled'
ok '  the best as a file, which extends the job' eval 'call 0 "${fitted[@]}" --fit --write fit.toml --set data.prefetch=2 &&
    has "^extends = .job.toml.$" fit.toml && has "^prefetch = 2 +# given by --set$" fit.toml'
grep -v '^#' fit.toml >fit.toml.keys
ok '  it is valid, fits, and holds no limits' eval 'call 0 validate fit.toml --world 2 &&
    call 0 plan fit.toml --world 2 --device-memory 6MiB --host-memory 64MiB && ! has memory fit.toml.keys'
ok '  on one rank it runs' eval 'call 0 plan --job job.toml --world 1 --device-memory 8MiB --host-memory 64MiB --fit --write one.toml && rm -rf run &&
    call 0 --job one.toml --set device.memory_limit=8MiB --set device.host_memory_limit=64MiB && has step run/metrics.jsonl'
ok '  elsewhere: by its whole path' eval 'mkdir -p away && call 0 "${fitted[@]}" --fit --write away/fit.toml && call 0 plan away/fit.toml --world 2'
# Machines that are named where nothing fits, one a line: DEVICE HOST ARGUMENTS
machines() { sed -n 's/.*smallest machine that would do has, for each rank, //p' err | sed 's/; or /\n/g' |
    sed -E 's/^([0-9.]+) (.iB) of device memory and ([0-9.]+) (.iB) of host memory, with (no other change)?/\1\2 \3\4 /'; }
does() { # DEVICE HOST SETTING...: the job is accepted there
    local device=$1 host=$2
    shift 2
    call 0 plan --job job.toml --world "$world" --device-memory "$device" --host-memory "$host" "$@"
}
named() { # COUNT WORLD DEVICE HOST: nothing fits there; so many machines are named, and each does
    local count=$1 line
    world=$2
    call 69 plan --job job.toml --world "$world" --fit --device-memory "$3" --host-memory "$4" && has E0607 err || return 1
    machines >lines
    [ "$(wc -l <lines)" = "$count" ] || return 1
    # shellcheck disable=SC2086
    while read -r line; do does $line || return 1; done <lines
}
ok 'nothing fits, of the device: the smallest machine is named, and it does' named 1 1 100KB 1GB
ok '  of the host' named 1 1 1GB 1KB
ok '  of both' eval 'named 1 1 100KB 1KB'
ok '  of either: two' eval 'named 2 1 2700KB 100KB'
ok '  the least of the device, also where the host has what this machine has' eval 'call 69 plan --job job.toml --world 1 --fit --device-memory 100KB && machines >lines &&
    [ -s lines ] && call 69 plan --job job.toml --world 1 --fit --device-memory 100KB --host-memory 1GB && machines | diff lines -'
ok '  on two ranks' eval 'named 1 2 100KB 1GB'
call 69 plan --job job.toml --world 1 --fit --device-memory 100KB --host-memory 1GB && machines >lines && read -r least rest <lines
ok '  --fit finds it there' call 0 plan --job job.toml --world 1 --device-memory "$least" --host-memory 1GB --fit
less=$(echo "${least%MiB}" | awk '{printf "%.2fMiB", $1 - 0.02}')
ok '  and nothing where there is less' call 69 plan --job job.toml --world 1 --device-memory "$less" --host-memory 1GB --fit

# --- one rank ---
ok 'without --world the plan is for one rank, and says so' eval 'call 0 plan --job job.toml --world 1 && mv out one && [ ! -s err ] &&
    call 0 plan --job job.toml && diff one out && [ "$(cat err)" = "planned for one rank; --world N plans for N" ]'
ok '  likewise with --fit and --max' eval 'call 0 plan --job job.toml --fit --format json && has "\"world\": 1" out && has "one rank" err &&
    call 0 plan --job job.toml --max batch && has "one rank" err && call 64 plan --job job.toml --per-node 2'

# --- the time that is predicted ---
number() { sed -n "s/.*\"$1\": \([0-9.e-]*\),*$/\1/p" out | head -n 1; }
ok 'a plan says how long a step takes' eval 'call 0 plan --job job.toml --world 2 && has "^predicted [0-9.]+ s a step, [0-9.]+[kM]? tokens/s, on (cpu|amx), by its table$" out &&
    has "^ +3 steps: [0-9.]+ s$" out && has " binds$" out'
ok '  in days, where it takes some' eval 'call 0 plan --job job.toml --world 2 --machine cpu --set train.max_steps=1000000000 && has "^ +1000000000 steps: [0-9]+ days$" out'
ok '  what nothing hides is part of it' eval 'call 0 plan --job job.toml --world 8 --machine h100 --set zero.stage=3 --set offload.optimizer=cpu --set device.backend=cuda --format json && python3 -I -c "import json
told = json.load(open(\"out\"))[\"predicted\"]
assert list(told[\"exposed\"]) == [\"update\", \"gathers\", \"copies\", \"launches\"] and 0 < sum(told[\"exposed\"].values()) < told[\"step_seconds\"]"'
ok '  its days follow from the step' eval 'call 0 plan --job job.toml --world 8 --machine h100 --format json && python3 -I -c "import json, math
told = json.load(open(\"out\"))[\"predicted\"]
step = told[\"step_seconds\"]
assert math.isclose(told[\"days\"], 3 * step / 86400), told"'
ok '  what helps most is taken from there' eval 'call 0 plan --job job.toml --world 1 --set train.gradient_checkpointing=full --format json &&
    before=$(number step_seconds) && line=$(arguments) && [ -n "$line" ] &&
    after=$(sed -n "/\"change\"/,/}/s/.*\"step_seconds\": \([0-9.e-]*\),*$/\1/p" out) &&
    call 0 plan --job job.toml --world 1 --set train.gradient_checkpointing=full $line --format json &&
    awk -v told="$after" -v is="$(number step_seconds)" -v was="$before" "BEGIN { exit !(told == is && is < was) }"'
ok '  where the data decides the steps: the time of 1e9 tokens' eval 'call 0 plan --job job.toml --world 1 --set train.max_steps=-1 && has "1e9 tokens: " out'

ok '--machine here without a calibration: 66' eval 'call 66 plan --job job.toml --world 1 --machine here && has E0609 err'
ok 'zerod bench calibrate measures this machine' eval 'call 0 bench calibrate --seconds 0.2 --threads 1 --json && has "\"ranks\": 1" out && has "\"products_16\"" out'
ok '  with the threads that OMP_NUM_THREADS gives a run too' eval 'export OMP_NUM_THREADS=3 && call 0 bench calibrate --seconds 0.01 --json && has "\"threads\": 3" out &&
    sed "/cpu_threads/d" job.toml >threads.toml && rm -rf run && call 0 --job threads.toml --max-steps 1 && has " x 3 threads" err && OMP_NUM_THREADS=1'
ok '  plans then use the calibration' eval 'call 0 plan --job job.toml --world 1 && has "^predicted .* on here, as measured$" out &&
    call 0 plan --job job.toml --world 2 && has "^predicted .* on here, as measured, but for the wire$" out'
ok '  unless --machine names another' eval 'call 0 plan --job job.toml --world 1 --machine cpu && has "on cpu, by its table$" out &&
    has "^         unknown processor: within a factor of 3; .zerod bench calibrate. measures it$" out && has "^predicted 0[.]0*[0-9] s a step, [0-9.]+k? tokens/s" out'
ok '  a broken calibration file is reported, and the table used' eval 'echo "{" >xdg/zerod/machine-*.json && call 0 plan --job job.toml --world 1 &&
    has "calibration is not used: it is broken" err && has "on (cpu|amx), by its table$" out'
ok '  and replaced' eval 'call 0 bench calibrate --seconds 0.2 --threads 1 && has "^kept in " out &&
    call 0 plan --job job.toml --world 1 && has "on here, as measured$" out'
ok '  likewise one of another machine' eval 'sed -i "s/\"cpus\": /&9/" xdg/zerod/machine-*.json && call 0 plan --job job.toml --world 1 &&
    has "calibration is not used: it is of another machine" err && call 66 plan --job job.toml --world 1 --machine here &&
    call 0 bench calibrate --seconds 0.01 --threads 1 --format json && has "\"products_16\"" out &&
    call 0 plan --job job.toml --world 1 --machine here && has "on here, as measured$" out && [ ! -s err ]'
ok '  two minutes by default' eval 'call 0 bench calibrate --help && has "^ +--seconds N +Measure for about N seconds .120.$" out'
for wrong in '--seconds 0' '--seconds -1' '--seconds nan' '--seconds soon' '--threads -1' '--format toml' 'here'; do
    # shellcheck disable=SC2086
    ok "  $wrong: 64" call 64 bench calibrate $wrong
done
ok '  a run has it in its status and its plan' eval 'rm -rf run && call 0 --job job.toml &&
    { has "\"predicted\": \{\"step_seconds\": [0-9.e-]+" run/status.json || has "\"predicted\": \{$" run/status.json; } &&
    has "\"calibrated\": true" run/plan.json'
rm -r xdg

# --- the most and the fewest ---
one=(plan --job job.toml --world 1 --device-memory 30MiB --host-memory 64MiB)
value() { sed -n 's/.*"value": \([0-9]*\).*/\1/p' out; }
ok 'the largest batch' eval 'call 0 "${one[@]}" --max batch --format json && n=$(value) && [ $n -ge 1 ] && has "\"what\": \"batch\"" out &&
    call 0 "${one[@]}" --set train.per_device_train_batch_size=$n && call 69 "${one[@]}" --set train.per_device_train_batch_size=$((n + 1))'
ok '  larger with --fit, which prints the changes' eval 'few=$n && call 0 "${one[@]}" --max batch --fit --format json && n=$(value) && [ $n -gt $few ] &&
    words=$(sed -n "s/.*\"arguments\": \"\(.*\)\",/\1/p" out) && [ -n "$words" ] && call 69 "${one[@]}" --set train.per_device_train_batch_size=$n &&
    call 0 "${one[@]}" --set train.per_device_train_batch_size=$n $words && call 0 "${one[@]}" --max batch --fit && has "^batch $n$" out && has "a step, .* binds" out && has "--set" out'
ok '  a global batch that is given goes with it' eval 'call 0 "${one[@]}" --max batch --set train.per_device_train_batch_size=1 --set train.global_batch_size=1 &&
    words=$(sed -n 2p out) && [[ $words = *global_batch_size=* ]] && call 0 "${one[@]}" $words'
ok 'a size without a unit: a warning' eval 'call 69 plan --job job.toml --world 1 --device-memory 24 && has "did you mean 24GiB" err'
ok 'only adapters fit: they are offered, and do' eval 'small=(plan --job job.toml --world 1 --device-memory 6MB --host-memory 1MB) && call 69 "${small[@]}" &&
    words=$(sed -n "s/.*help: \(--set lora.enabled=true .*[^ ]\)   (.*/\1/p" err | head -1) && [ -n "$words" ] && call 0 "${small[@]}" $words'
ok 'nothing fits: --allow is named' eval 'call 69 plan --job job.toml --world 1 --fit --device-memory 100KB && has "allow optim,lora,quantize" err'
ok 'the longest sequence' eval 'two=(plan --job job.toml --world 1 --device-memory 20MiB --host-memory 64MiB) && call 0 "${two[@]}" --max seq --format json &&
    n=$(value) && [ $n -lt 64 ] && call 0 "${two[@]}" --set data.cutoff_len=$n && call 69 "${two[@]}" --set data.cutoff_len=$((n + 1))'
ok 'the largest model' eval 'call 0 plan --job job.toml --world 8 --max model --device-memory 80GiB --host-memory 100GiB && has "^model [0-9]+ parameters \(.+\)$" out'
sharded=(plan --job job.toml --set zero.stage=3 --set train.gradient_checkpointing=full)
call 0 "${sharded[@]}" --world 4 --format json
sharded+=(--device-memory $(planned device) --host-memory 64MiB)
ok 'the fewest ranks' eval 'call 0 "${sharded[@]}" --min world --format json && n=$(value) && [ $n -gt 1 ] && [ $n -le 4 ] &&
    call 0 "${sharded[@]}" --world $n && call 69 "${sharded[@]}" --world $((n - 1))'
ok '  fewer with --fit, in other micro-batches too' eval 'call 0 plan --job job.toml --world 2 --device-memory 6MiB --host-memory 64MiB --fit &&
    call 0 plan --job job.toml --min world --device-memory 6MiB --host-memory 64MiB --fit --format json && n=$(value) && [ $n -le 2 ] &&
    call 69 plan --job job.toml --min world --device-memory 6MiB --host-memory 64MiB &&
    call 0 "${two[@]}" --max seq --fit --format json && [ $(value) = 64 ] && call 0 "${two[@]}" --fit --set data.cutoff_len=64'
ok '  no number of ranks is enough' eval 'call 69 plan --job job.toml --min world --device-memory 1KB --host-memory 64MiB && has E0607 err'
ok '  numbers that cannot share a step are passed over' eval 'odd=(--set train.global_batch_size=3 --set train.per_device_train_batch_size=1) &&
    call 69 plan --job job.toml "${odd[@]}" --min world --device-memory 1KB --host-memory 8GiB && has "not even with 3 ranks .with 4: .*global_batch_size.*: device memory binds" err && has "the smallest machine that would do" err &&
    call 0 "${sharded[@]}" "${odd[@]}" --min world --format json && [ $(value) = 3 ]'
also() { # HELP SETTING...: of what --allow takes, that is offered which the job does not have
    call 69 plan --job job.toml --world 1 --fit --device-memory 1KB --host-memory 1GB "${@:2}" && has E0607 err &&
        if [ "$1" ]; then has "$1" err; else ! has "also tries" err; fi
}
ok 'what may be allowed besides is told' also '--fit --allow optim,lora,quantize also tries 8-bit states, adapters, a base in 4 bits$'
ok '  but nothing that the job has' eval 'also "--fit --allow lora,quantize also tries adapters" --set optim.name=adamw_8bit && also "--allow quantize also tries a base" --set optim.name=adamw_8bit --set lora.enabled=true &&
    also "" --set optim.name=adamw_8bit "${codes[@]}"'
# 32 micro-batches: depth first their sums are on the host, breadth first the inputs of a layer on the device
orders=(plan --job job.toml --world 1 --set offload.optimizer=cpu --set offload.params=cpu --set train.gradient_checkpointing=full --set train.per_device_train_batch_size=1
    --set train.global_batch_size=32)
ok 'the order of micro-batches that lacks less is refused, and what the other one needs' eval 'call 69 "${orders[@]}" --device-memory 700KB --host-memory 4MB &&
    has "E0601.* 3.93 MiB of device memory" err && has "order = \"breadth_first\"; with \"depth_first\" each rank needs 2.81 MiB of device memory and 22.13 MiB of host" err'
ok '  either fits with so much' eval 'call 0 "${orders[@]}" --device-memory 3.94MiB --host-memory 14.2MiB && call 0 "${orders[@]}" --device-memory 2.82MiB --host-memory 22.2MiB &&
    call 0 "${orders[@]}" --set train.accumulation_order=depth_first --device-memory 2.82MiB --host-memory 22.2MiB'
for asked in '--world 1 --max batch' '--world 1 --max seq' '--world 8 --max model' '--min world' '--world 1 --max batch --fit' '--world 1 --max seq --fit'; do
    # shellcheck disable=SC2086
    ok "  $asked names the smallest machine that would do" eval "call 69 plan --job job.toml $asked --device-memory 1KB --host-memory 8GiB &&
        has 'not even with' err && read -r device host rest < <(machines) &&
        call 0 plan --job job.toml $asked --device-memory \$device --host-memory \$host"
done
ok '  the smallest of any number of ranks: with 1 % less of the device none is enough' eval 'call 69 plan --job job.toml --min world --device-memory 1KB --host-memory 8GiB &&
    less=$(machines | awk "{ print .99 * \$1; exit }") && call 69 plan --job job.toml --min world --device-memory ${less}MiB --host-memory 8GiB'

# Paged states go to the host in part: with what the host has, the device that is named does, and one of 1 % less does not.
job 32 | sed 's/hidden_size = 64/hidden_size = 4096/; s/intermediate_size = 256/intermediate_size = 14336/; s/num_attention_heads = 4/num_attention_heads = 32/' >large.toml
large=(plan --job large.toml --world 1 --set device.backend=cuda --machine h100 --fit)
for host in 20GiB 40GiB; do
    ok "  of a host of $host the least device" eval 'call 69 "${large[@]}" --device-memory 10GiB --host-memory $host &&
        size=$(sed -n "s/.*for each rank, \([0-9.]*\) GiB of device memory.*paged_adamw_32bit.*/\1/p" err) && [ -n "$size" ] &&
        less=$(awk -v x=$size "BEGIN { print .99 * x }") && call 0 "${large[@]}" --device-memory ${size}GiB --host-memory $host &&
        call 69 "${large[@]}" --device-memory ${less}GiB --host-memory $host'
done

# --- what is asked wrongly ---
while IFS='|' read -r code words; do
    # shellcheck disable=SC2086
    ok "plan $words: $code" eval "call $code plan --job job.toml $words"
done <"$fixtures/../cli/plan_refused.txt"

# --- limits ---
ok 'a limit of the job is named' eval 'call 69 plan --job job.toml --world 1 --set device.memory_limit=1MB && has "bytes. of device.memory_limit$" err'
ok '  and one of the host' eval \
    'call 69 plan --job job.toml --world 1 --set device.host_memory_limit=1KB && has "bytes. of device.host_memory_limit$" err'
ok "  and this machine's" eval \
    "call 69 plan --job job.toml --world 1 --set train.per_device_train_batch_size=16777216 && has \"of this machine's memory$\" err"
ok 'limits are printed with what is planned' eval 'call 0 plan --job job.toml --world 1 --set device.memory_limit=128MiB \
    --set device.host_memory_limit=64MiB --set offload.optimizer=cpu &&
    has "^  device takes .* of 128.000 .device.memory_limit.$" out && has "^  host takes [0-9.]+ of 64.000 .device.host_memory_limit.$" out && [ ! -s err ]'
ok 'limits of another machine: planned, with a warning about this one' eval 'call 0 plan --job job.toml --world 1 --set device.memory_limit=0.1PB \
    --set device.host_memory_limit=100TB --set train.per_device_train_batch_size=8388608 &&
    [ $(wc -l <err) = 1 ] && has "this machine has .* a run here would be refused" err'
# What one rank may take in MiB, and a batch that takes about 0.7 of it: two ranks of a host have half of it each, as in a run.
call 0 plan --job job.toml --world 1 --set train.gradient_checkpointing=none --set train.per_device_train_batch_size=1000
most=$(sed -n "s/^  device .* of \([0-9.]*\) (this machine's memory)$/\1/p" out) batch=$(awk "/model.activations/ { print int(.7 * $most / \$3 * 1000) }" out)
ok 'two ranks share the memory of their host' eval 'one=(--job job.toml --set train.tiled_mlp=1 --set train.gradient_checkpointing=none --set train.per_device_train_batch_size=$batch) &&
    call 0 plan "${one[@]}" --world 1 && call 69 plan "${one[@]}" --world 2 && has "of this machine.s memory for each of 2 local ranks$" err &&
    call 0 plan "${one[@]}" --world 2 --per-node 1'

# --- by force ---
small=(--job job.toml --set device.memory_limit=1MB --set device.host_memory_limit=1GiB --set train.max_steps=1)
arena() { sed -n '/"name": "device"/,/}/s/.*"taken_bytes": \([0-9]*\).*/\1/p' run/plan.json; }
over() { sed -n '/"limits"/,$p' run/plan.json | sed -n '/"device"/,/}/s/.*"over": \([0-9]*\).*/\1/p'; }
ok 'a refused job runs when it is forced' eval 'rm -rf run && call 69 "${small[@]}" && call 0 "${small[@]}" --force && has "\"forced\": true" run/plan.json &&
    [ $(arena) -gt 1000000 ] && [ $(over) = $(($(arena) - 1000000)) ]'
ok '  bit-identical to the run that has room' eval 'grep -o "\"loss\": *[0-9.]*" run/metrics.jsonl >forced && rm -rf run && call 0 --job job.toml --set train.max_steps=1 &&
    grep -o "\"loss\": *[0-9.]*" run/metrics.jsonl | diff forced - && ! has forced run/plan.json && [ "$(over)" = 0 ]'
ok '  more than the machine has: 69' eval 'rm -rf run && call 69 "${small[@]}" --force --set train.per_device_train_batch_size=16777216 && has E0608 err'
ok '  more than the process may have: 69, by no signal' eval '(ulimit -v 700000; call 69 "${small[@]}" --force --set train.tiled_mlp=1 --set train.per_device_train_batch_size=4096) && has "error.E" err'

# --- the layout ---
codes=(--job job.toml --world 1 --set train.fp8=tensorwise)
ok 'a plan names the matmuls in FP8, and the modules that stay in bf16' eval '
    call 0 plan "${codes[@]}" --set model.config.num_key_value_heads=1 --set model.config.head_dim=8 --format json && has "\"mode\": \"tensorwise\"" out && has "self_attn.k_proj" out &&
    call 0 plan "${codes[@]}" --set model.config.num_key_value_heads=1 --set model.config.head_dim=8 && has "in bf16 still: self_attn.q_proj, self_attn.k_proj, self_attn.v_proj$" out &&
    call 0 plan "${codes[@]}" && has "matmuls of the layers in FP8, tensorwise" out && ! has "in bf16 still" out &&
    call 0 plan "${codes[@]}" --set device.backend=cuda --machine a100 && has "needs a GPU of compute capability 8.9 or higher, and a100 has 8.0" err'
ok '  and that they keep fewer bytes' eval 'for mode in none blockwise; do
        call 0 plan "${codes[@]}" --set train.gradient_checkpointing=none --set train.fp8=$mode --format json || return 1
        python3 -I -c "import json, sys; print(next(s[\"bytes\"] for s in json.load(open(sys.argv[1]))[\"ranks\"][0][\"arenas\"][0][\"spans\"] if s[\"name\"] == \"model.activations\"))" out >bytes.$mode
    done; (($(<bytes.blockwise) < $(<bytes.none)))'
ok 'an MLP in as many pieces as fit: the plan says so, and the run; not where the job says one' eval 'tiles=(--job job.toml --set data.cutoff_len=64
        --set train.per_device_train_batch_size=64 --set train.gradient_checkpointing=full --set device.memory_limit=34.5MiB --set train.max_steps=1) &&
    call 0 plan "${tiles[@]}" --world 1 --format json && has "\"tiled_mlp\": 2" out && call 0 plan "${tiles[@]}" --world 1 && has "full, MLP in 2 pieces .by auto." out &&
    rm -rf run && call 0 "${tiles[@]}" && has "^  auto     train.tiled_mlp = 2$" err && has "\"tiled_mlp\": 2" run/plan.json &&
    call 69 plan "${tiles[@]}" --world 1 --set train.tiled_mlp=1 && has "set train.tiled_mlp=auto" err'
ok 'what auto chose' eval 'call 0 plan --job job.toml --world 1 --set train.gradient_checkpointing=auto --set offload.optimizer=cpu \
    --set train.gradient_accumulation_steps=2 --set optim.name=adamw_8bit &&
    has "^         gradient checkpointing none .by auto., gradients of 2 micro-batches, depth_first, added up on the device .by auto.$" out &&
    has "^         optimizer adamw_8bit, 8-bit states, fp32 master weights$" out &&
    has "^         offload of optimizer: cpu, params: none, activations: none$" out'
ok '  and with less room' eval 'call 0 plan --job job.toml --world 1 --set train.gradient_checkpointing=auto --set offload.optimizer=cpu \
    --set train.gradient_accumulation_steps=2 --set device.memory_limit=11MiB --set train.accumulation_order=depth_first &&
    has "checkpointing (full|sqrt) .by auto., gradients of 2 micro-batches, depth_first, added up on the host .by auto.$" out'
ok '  or by layer, whose sums fit the device' eval 'call 0 plan --job job.toml --world 1 --set train.gradient_checkpointing=auto --set offload.optimizer=cpu \
    --set train.gradient_accumulation_steps=2 --set device.memory_limit=11MiB && has "breadth_first .by auto., added up on the device .by auto.$" out'
ok '  as JSON' eval 'call 0 plan --job job.toml --world 1 --format json --set train.gradient_checkpointing=every:2 --set optim.name=sgd &&
    has "\"gradient_checkpointing\": \"every:2\"" out && has "\"optimizer\": \"sgd\"" out && has "\"accumulate\": \"device\"" out'
# --- an update that begins before the norm is known ---
undo=(plan --job job.toml --world 1 --set offload.optimizer=cpu --set offload.clipping=undo)
undone() { # bytes of old values, share of the weights, host bytes in all
    "$zerod" "${undo[@]}" --format json "$@" | python3 -I -c 'import json, sys
plan = json.load(sys.stdin)
undo = plan["layout"]["offload"]["undo"]
host = sum(arena["planned_bytes"] for arena in plan["ranks"][0]["arenas"] if arena["name"] in ("host", "pinned"))
print(undo["bytes"], round(undo["share"], 6), host)'
}
least=$(undone --set offload.undo_memory=0) most=$(undone)
ok 'all of it where there is room, or nothing' eval '[ "$most" = "$(undone --set offload.undo_memory=1TB)" ] &&
    [ "$(cut -d" " -f2 <<<"$most")" = 1.0 ] && [ "$(cut -d" " -f1,2 <<<"$least")" = "0 0.0" ]'
least=${least##* } most=${most##* }
for k in 1 2 3; do
    ok "  with $k quarters of the memory for it: whole segments, and the job fits" eval '
        limit=$((least + (most - least) * k / 4)) && read -r bytes share host < <(undone --set device.host_memory_limit=$limit) &&
        [ "$share" != 1.0 ] && [ "$bytes" -gt 0 ] && [ "$host" = $((least + bytes)) ] && [ "$host" -le "$limit" ] &&
        [ "$(undone --set offload.undo_memory=$((limit - least)))" = "$bytes $share $host" ]'
done
ok '  as text' eval 'call 0 "${undo[@]}" --set device.host_memory_limit=$limit &&
    has "^         [1-9][0-9.]* % of the weights are updated before the norm is known; old values [0-9.]+ MiB$" out'
ok '  without room, it waits' eval '[ "$(undone --set device.host_memory_limit=$least)" = "0 0.0 $least" ]'
ok '  and warns' eval 'call 0 "${undo[@]}" --set offload.undo_memory=1KB && has "undo_memory of 0.001 MiB has room for no layer .one needs [0-9.]+ MiB.: all wait for the norm$" err'
ok '  what is asked for must fit' eval 'call 69 "${undo[@]}" --set device.host_memory_limit=$least --set offload.undo_memory=1TB'
# --- an update that the device shares ---
shared=(plan --job job.toml --world 1 --set device.backend=cuda --set offload.optimizer=cpu --set optim.name=adamw_8bit)
moved() { # its share, bytes down and up, of buffers and of pinned states
    "$zerod" "${shared[@]}" --format json "$@" 2>err | python3 -I -c 'import json, sys
plan = json.load(sys.stdin)
spans = {span["name"]: (arena["name"], span["bytes"]) for arena in plan["ranks"][0]["arenas"] for span in arena["spans"]}
moves = plan["offload_bytes_per_step"]
print(plan["layout"]["offload"].get("device_update"), moves["down"], moves["up"], *spans.get("offload.visits", ("none", 0)), *spans["offload.states"])'
}
read -r none down up place buffers memory states < <(moved)
ok 'without a calibration the host updates all' eval '[ "$none $place $memory" = "None none host" ]'
ok '  all by the device: states come and go, gradients come, parameters stay' eval 'read -r all more most place buffers memory same < <(moved --set offload.device_update=1) &&
    [ "$all $place $memory $same" = "1.0 device pinned $states" ] && [ $((more - down)) = "$states" ] && [ $((most - up)) = "$states" ] && [ "$buffers" -gt 0 ]'
ok '  half, as text' eval 'call 0 "${shared[@]}" --set offload.device_update=0.5 && has "^         50 % of the update is made by the device, the rest by the host$" out'
mkdir -p xdg/zerod
"$zerod" bench calibrate --json --seconds 0.1 >calibrated.json 2>err
divided() { # the share by "auto", where updates on the host move so many bytes a second and the link so many
    python3 -I - "$1" "$2" <<'PY'
import glob, json, sys
[path] = glob.glob("xdg/zerod/machine-*-cpu.json")
told = json.load(open(path))
told.update(backend="cuda", machine={**told["machine"], "products_16": 4e14, "products_32": 2e14, "memory": 2e12, "launch": 1e-6,
                                     "host_fp32": 4e11, "host_8bit": float(sys.argv[1]), "link": float(sys.argv[2])})
json.dump(told, open(path.replace("-cpu.json", "-cuda.json"), "w"))
PY
    moved | cut -d" " -f1
}
ok '  with one, by its speeds: a slow host has less to do, a slow link less to carry' eval 'slow=$(divided 2e9 2e10) even=$(divided 2e10 2e10) fast=$(divided 2e11 1e9) &&
    python3 -I -c "import sys; s, e, f = (0 if a == \"None\" else float(a) for a in sys.argv[1:]); sys.exit(not (s > e > f == 0))" $slow $even $fast'
rm -rf xdg
ok 'all on disk: bytes per parameter' eval 'call 0 plan --job job.toml --world 1 --set offload.optimizer=nvme --set offload.nvme_path=. \
    --set offload.params=nvme && has "^disk bytes per trained parameter [0-9.]+$" out && ! has "^host bytes" out'
ok 'slots in memory, the rest on disk' eval 'call 0 plan --job job.toml --world 1 --set offload.optimizer=nvme --set offload.nvme_path=. &&
    has "^disk bytes per trained parameter [0-9.]+$" out && has "^host bytes per trained parameter [0-9.]+$" out'

# --- axes of the mesh ---
ok 'tensor parallelism across hosts: a warning with its price' eval 'call 0 plan --job job.toml --world 4 --per-node 2 --set parallel.tp_size=4 &&
    has "^warning: parallel.tp_size = 4 crosses hosts of 2 ranks: its collectives take [0-9.e-]+ s of a step of [0-9.e-]+ s, by prediction$" err &&
    call 0 plan --job job.toml --world 4 --per-node 2 --set parallel.tp_size=2 && [ ! -s err ]'
ok 'the axes, the groups that share samples, and what each axis sends' eval 'call 0 plan --job job.toml --world 8 --set zero.stage=3 --set parallel.cp_size=2 --set parallel.tp_size=2 &&
    has "^mesh     replicate 1 x shard 2 x cp 2 x tp 2; attention by a2a$" out && has "^  cp, within hosts: all-to-all [0-9]+$" out && has " batch 8 x 1 x 2 groups of 4 ranks = 16 sequences$" out && has "^  tp, within hosts: reduce-scatter [0-9]+$" out'
ok '  none where there are shards alone' eval 'call 0 plan --job job.toml --world 2 && ! has "^mesh" out && has " batch 8 x 1 x 2 = 16 sequences$" out'

# --- GPUs that are elsewhere ---
nodes=(plan --job job.toml --world 8 --per-node 4)
ok 'no GPU here: the plan is of the CPU, and says how to ask for another' eval 'call 0 "${nodes[@]}" &&
    has "^device   cpu: .+; for a machine with GPUs add --set device.backend=cuda$" out'
ok '  nothing more where the CPU was asked for' eval 'call 0 "${nodes[@]}" --set device.backend=cpu && has "^device   cpu$" out'
ok '  planned for GPUs: why they are not here' eval 'call 0 "${nodes[@]}" --set device.backend=cuda &&
    has "^device   cuda, of another machine: .+$" out && has "^driver and libraries" out'
ok '  as JSON' eval 'call 0 "${nodes[@]}" --set device.backend=cuda --format json && grep -A1 "\"device\": {" out | has "\"backend\": \"cuda\"" - &&
    has "\"no_gpu\": \".+\"" out'
ok '  a GPU that is named is enough, but for a job that asks for the CPU' eval 'call 0 "${nodes[@]}" --machine a100 && has "^device   cuda, of another machine: .+$" out &&
    call 0 "${nodes[@]}" --machine a100 --set device.backend=cpu && has "^device   cpu$" out'
ok '  a share of their memory is refused: a size is needed' eval 'call 78 plan --job job.toml --world 1 --device-memory 90% --machine h100 && has "E0213.*is a share" err && has "24GiB" err &&
    call 78 init --model $fixtures/qwen3/model --data data.txt --device-memory 90% --machine 4090 && has "E0213.*is a share" err'
ok '  a size of two words is no second job file' eval 'call 64 plan --job job.toml --device-memory 24 GiB && has "without a blank: 24GiB" err'
ok 'GPUs are joined by NCCL, one for each rank of a node' eval 'call 0 "${nodes[@]}" --set device.backend=cuda --set comm.backend=nccl &&
    has "collectives over NCCL, in two levels: 2 nodes of 4 ranks$" out && has "^    comm.device" out && ! has "NCCL 0$" out'
mv out asked
ok '  by themselves, unless this program has none, which it says' eval 'call 0 "${nodes[@]}" --set device.backend=cuda && { diff asked out >/dev/null ||
    has "the host.s memory and MPI: this zerod was built without NCCL; .* --set comm.backend=nccl$" out; }'
ok '  more ranks of a node than GPUs that the job names' eval 'call 0 "${nodes[@]}" --set device.backend=cuda --set device.gpus=\"0,1\" &&
    has "collectives over the host.s memory and MPI" out'

# --- keys of GPUs ---
ok 'a run on the CPU names the keys that do nothing there' eval 'rm -rf run && call 0 --job job.toml --set comm.max_ctas=4 --set model.attn=cudnn \
    --set train.max_steps=1 && has "without effect on the CPU: model.attn, comm.max_ctas$" err'
ok '  and is silent where there are none' eval 'rm -rf run && call 0 --job job.toml --set train.max_steps=1 && ! has "without effect" err'
ok 'without a GPU: what to do about it' eval 'call 69 --job job.toml --set device.backend=cuda && has "E1201" err &&
    has "^  = help: (build zerod with -Dcuda=enabled .docs/gpu.md.|install the NVIDIA driver, 580 or later|.nvidia-smi. lists)" err'

# --- what a run moves ---
# Three steps bring down three times what was planned. Parameters of an update that is under way count in the next step's
# report, so that those of the last may lack.
moves() { # DOWN UP: of metrics.jsonl, summed over the steps
    sed -n 's/.*"down_bytes": *\([0-9]*\).*"up_bytes": *\([0-9]*\).*/\1 \2/p' run/metrics.jsonl |
        awk '{down += $1; up += $2} END {print down, up}'
}
while read -r settings; do
    # shellcheck disable=SC2086
    ok "planned and moved: ${settings:-as it is}" eval "rm -rf run; call 0 plan --job job.toml --world 1 $settings &&
        sed -n 's/^rank 0 moves.*down \([0-9]*\), parameters up \([0-9]*\).*/\1 \2/p' out >plan.txt &&
        call 0 --job job.toml --set device.streams=inline $settings && read -r down up <plan.txt && moves >moved.txt && read -r all_down all_up <moved.txt &&
        cat plan.txt moved.txt && [ \$((3 * down)) = \$all_down ] && [ \$all_up -le \$((3 * up)) ] && [ \$all_up -ge \$((2 * up)) ]"
done <<'ROWS'
--set offload.optimizer=cpu
--set offload.optimizer=cpu --set train.gradient_accumulation_steps=2 --set offload.accumulate=host
--set offload.optimizer=cpu --set offload.params=cpu --set train.gradient_checkpointing=full
ROWS
tests_end
