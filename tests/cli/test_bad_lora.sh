#!/usr/bin/env bash
# Settings of [lora], and adapters, that cannot be; one row each. usage: test_bad_lora.sh ZEROD SOURCE
. "$(dirname "$0")/bad_input.sh"
# lora LINE...: a section of these lines, with adapters
lora() { { echo '[lora]'; echo 'enabled = true'; printf '%s\n' "$@"; } >>job.toml; }
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
    printf '[lora]\npath = "adapter"\n' >>job.toml
}

# stored NAME LINE...: a model in codes, and adapters
stored() {
    rm -r model
    cp -r "$fixtures/quant/$1" model
    cp "$fixtures/llama/model/tokenizer.json" model
    shift
    lora "r = 2" "$@"
}
# broken FROM TO: of the same length, in every place of the model's file
broken() { edit model/model.safetensors "s/$1/$2/g"; }

row 'a target that is no module' 78 'E0326|job.toml|`q_prj`|"q_proj"' 'lora "target_modules = [\"q_prj\"]"'
row 'an embedding as a target' 78 'E0326|`embed_tokens`|modules_to_save' 'lora "target_modules = [\"embed_tokens\"]"'
row 'an embedding that a pattern takes in' 78 'E0326|embed_tokens' 'lora "target_modules = \".*\""'
row 'a tied head as a target' 78 'E0326|tied' 'lora "target_modules = [\"lm_head\"]"'
row 'a tied head that is saved' 78 'E0326|tied|"embed_tokens" trains it' 'lora "modules_to_save = [\"lm_head\"]"'
row 'no target at all' 78 'E0206|target_modules' 'lora "target_modules = []"'
row 'a name where a pattern goes' 78 'E0326|no module|a string is a pattern|["q_proj"] is a list' 'lora "target_modules = \"q_proj\""'
row 'all of them in a list' 78 'E0326|`all-linear`|in no list' 'lora "target_modules = [\"all-linear\"]"'
row 'a pattern that cannot be read' 78 'E0320|job.toml:20:1|target_modules' 'lora "target_modules = \"(\""'
row 'a module to save that is none' 78 'E0326|`lm_haed`' 'lora "modules_to_save = [\"lm_haed\"]"'
row 'a rank of 0' 78 'E0206|from 1' 'lora "r = 0"'
row 'a rank beyond the matrix' 78 'E0326|lora.r = 64|at most' 'lora "r = 64"'
row 'a rank of a pattern beyond the matrix' 78 'E0326|job.toml|lora.rank_pattern: r = 64|at most' 'lora "r = 2" "rank_pattern = { q_proj = 64 }"'
row 'a module left out that is none' 78 'E0326|lora.exclude_modules: `o_prj`|"o_proj"' 'lora "exclude_modules = [\"o_prj\"]"'
row 'an alpha of 0' 78 'E0206|above 0' 'lora "lora_alpha = 0"'
row 'all of the inputs dropped' 78 'E0206|below 1' 'lora "lora_dropout = 1.0"'
row 'a layer that is not there' 78 'E0326|9 is not a layer|0 to 1' 'lora "layers_to_transform = [0, 9]"'
row 'layers beside a pattern' 78 'E0326|layers_to_transform' 'lora "target_modules = \".*q_proj\"" "layers_to_transform = 0"'
row 'a target that is a number' 78 'E0205|an array of names' 'lora "target_modules = 1"'
row 'a format that is none' 78 'E0207|nf5|nf4' 'lora "quantize_base = \"nf5\""'
row 'a pattern of ranks that fits nothing' 78 'E0326|job.toml|lora.rank_pattern|`q_prj`|"q_proj"' 'lora "rank_pattern = { q_prj = 2 }"'
row 'a pattern of alphas that fits no target' 78 'E0326|lora.alpha_pattern|`q_proj`' 'lora "target_modules = [\"v_proj\"]" "alpha_pattern = { q_proj = 2 }"'
row 'adapters that nobody enabled' 78 'E0213|job.toml|lora.r without|lora.enabled|enabled = true' 'printf "[lora]\nr = 8\nuse_dora = true\n" >>job.toml'
row 'a quantized base without adapters' 78 'E0213|quantize_base|lora.enabled is not given|enabled = true' : validate --job job.toml --set lora.quantize_base=nf4
row 'scales in 8 bits of no codes' 78 'E0213|job.toml|double_quant without quantize_base' 'lora "double_quant = true"'
row 'what others call r' 78 'E0203|`rank`|did you mean `r`' 'lora "rank = 8"'
row 'what others call quantize_base' 78 'E0203|`load_in_4bit`|`quantize_base = "nf4"` in [lora]' : validate --job job.toml --set model.load_in_4bit=true
row 'scales of int8 in 8 bits' 78 'E0213|double_quant|nf4' 'lora "quantize_base = \"int8\"" "double_quant = true"'
row 'a base stored in other codes' 78 'E0329|quantize_base = "nf4"|int8|remove the key' 'stored int8 "quantize_base = \"nf4\""'
row 'a quantized base that the job does not want quantized' 78 'E0329|"none"|fp8' 'stored fp8 "quantize_base = \"none\""'
row 'FP8 over a base stored in other codes' 78 'E0213|--set train.fp8|nf4|train.fp8 = "none"' 'stored nf4-nested' validate --job job.toml --set train.dtype=bf16 --set train.fp8=tensorwise
row 'scales stored in other codes' 78 'E0329|double_quant = false|8 bits' 'stored nf4-nested "double_quant = false"'
row 'a base in codes without adapters' 65 'E0304|quantization_config|cannot be trained|[lora]' 'stored int8' validate --job job.toml --set lora.enabled=false
row 'a broken quant_state' 65 'E0331|quant_state|model.safetensors' 'stored nf4-nested; broken "\"blocksize\": 64" "\"blocksize\": 60"'
row 'scales of another type' 65 'E0330|down_proj.SCB|I32|model.safetensors' 'stored int8; header model/model.safetensors "s/\(down_proj.SCB\":{\"dtype\":\"\)F32/\1I32/"'
row 'a scale that makes no number' 65 'E0330|down_proj.SCB|no finite number|model.safetensors' 'stored int8; poke_tensors model/model.safetensors 0 "\377\377\177\177"'
row 'frozen twice' 78 'E0213|freeze|modules_to_save' 'lora' validate --job job.toml --set 'train.freeze=["norm"]'
row 'no masters' 78 'E0213|fp32 masters' 'lora' validate --job job.toml --set optim.master=none --set train.dtype=bf16
row 'an adapter of a run without' 78 'E0213|export|lora.enabled' : validate --job job.toml --set checkpoint.export=peft
row 'an adapter that is not there' 66 'E0219|adapter nowhere' : validate --job job.toml --set lora.path=nowhere
row 'the folder around an adapter' 66 'E0712|out/adapter_config.json|out/peft is one' 'mkdir -p out; cp -r "$fixtures/llama/lora" out/peft' validate --job job.toml --set lora.path=out
row 'a checkpoint as an adapter' 66 'E0712|kept/adapter_config.json|zerod export kept' 'mkdir kept; echo "{}" >kept/manifest.json' validate --job job.toml --set lora.path=kept
row 'a key of PEFT that is not supported' 65 'E0321|use_qalora' 'from use_qalora true' run --job job.toml
row 'a rank other than that of the adapter' 78 'E0326|lora.r = 5|4' 'from bias "\"none\""' run --job job.toml --set lora.r=5
row 'a key of PEFT that nobody knows' 65 'E0321|unheard_of' 'from unheard_of 1' run --job job.toml
row 'an adapter whose rank is not that of its file' 65 'E0323|lora_A.weight|[4, |[5, ' 'from r 5' validate --job job.toml
row 'an adapter of another model' 65 'E0323|was made for `tiny/wide`' 'from base_model_name_or_path "\"tiny/wide\""; edit adapter/adapter_config.json "s/\"r\": 4/\"r\": 5/"' validate --job job.toml
row 'an adapter that is cut off' 65 'E0721|adapter_model.safetensors' 'from bias "\"none\""; truncate -s 100 adapter/adapter_model.safetensors' run --job job.toml
row 'an adapter of another base' 65 'E0322' 'from target_modules "[\"o_proj\"]"' run --job job.toml
row 'two tensors for one place of an adapter' 65 'E0322|appears twice|`base_model.model.h.1.attn.c_proj.lora_B.weight`' \
    'cp -r "$fixtures/adapters/gpt2-dora" adapter; header adapter/adapter_model.safetensors "s/transformer.h.1.mlp.c_proj.lora_B/h.1.attn.c_proj.lora_B/"' \
    merge --base "$2/tests/fixtures/gpt2/model" --adapter adapter -o merged
row 'factors whose product is no number' 65 'E0312|down_proj.weight|`adapter`|infinite' \
    'cp -r "$fixtures/llama/lora" adapter; for at in 0 1152; do poke_tensors adapter/adapter_model.safetensors $at "\377\377\177\177"; done' \
    merge --base "$2/tests/fixtures/llama/model" --adapter adapter -o merged
row "an adapter's module that the base does not have" 65 'E0326|target_modules: `q_prj`|"q_proj"|adapter/adapter_config.json' 'from target_modules "[\"q_prj\"]"' validate --job job.toml
row "an adapter's module to save that the base does not have" 65 'E0326|`lm_haed`|adapter/adapter_config.json' 'from modules_to_save "[\"lm_haed\"]"' run --job job.toml
row "an adapter's rank beyond the matrix" 65 'E0326|r = 640|at most|adapter/adapter_config.json' 'from r 640' run --job job.toml
done_rows
