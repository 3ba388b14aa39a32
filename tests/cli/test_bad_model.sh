#!/usr/bin/env bash
# Broken models, one row each: weights, config.json, tokenizer. usage: test_bad_model.sh ZEROD SOURCE
. "$(dirname "$0")/bad_input.sh"
w=model/model.safetensors
# nul FILE TEXT: where the whole string is TEXT, a NUL and more behind it
nul() { edit "$1" "s/\"$2\"/\"$2\\\\u0000x\"/"; }

# --- safetensors: the file ---
row 'weights cut within the tensors' 65 "E0726|$w" 'truncate -s -2 $w'
row 'weights cut within the header' 65 "E0721|$w|header goes beyond its end" 'truncate -s 500 $w'
row 'weights of seven bytes' 65 "E0721|$w" 'truncate -s 7 $w'
row 'weights of no byte' 65 "E0721|$w" ': >$w'
row 'bytes behind the last tensor' 65 "E0726|$w" 'printf xx >>$w'
row 'a header of 2^63 bytes' 65 "E0721|$w|above 100000000" 'poke $w 0 "\0\0\0\0\0\0\0\200"'
row 'a header of 100000001 bytes' 65 "E0721|$w|above 100000000" 'u64 100000001 >len; dd if=len of=$w conv=notrunc status=none'
row 'a header that is no JSON' 65 "E0711|$w" 'poke $w 9 "}"'
row 'a header that begins with a blank' 65 "E0722|$w" 'header $w "s/^{/ {/"'
row 'a Git LFS pointer' 65 "E0721|$w|git lfs pull" 'echo "version https://git-lfs.github.com/spec/v1" >$w'

# --- safetensors: the tensors ---
row 'a tensor that overlaps the one before it' 65 "E0724|$w|model.layers.0.mlp.down_proj.weight" \
    'header $w "s/\[31808,36416\]/[31806,36414]/"'
row 'two tensors of the same bytes' 65 "E0724|$w|overlaps" 'header $w "s/\[36416,41024\]/[31808,36416]/"'
row 'a hole between tensors' 65 "E0724|$w|model.layers.0.mlp.down_proj.weight" \
    'header $w "s/\[31808,36416\]/[31810,36418]/"'
row 'a tensor that ends before it begins' 65 "E0724|$w|ends before it begins" 'header $w "s/\[31744,31808\]/[31808,31744]/"'
row 'offsets beyond 64 bits' 65 "E0723|$w|data_offsets" 'header $w "s/\[31744,31808\]/[31744,36893488147419103232]/"'
row 'a negative offset' 65 "E0723|$w|data_offsets" 'header $w "s/\[31744,31808\]/[-1,31808]/"'
row 'a shape that overflows' 65 "E0725|$w|model.embed_tokens.weight" \
    'header $w "s/\[496,32\]/[4294967296,4294967296]/"'
row 'a shape that is not what the bytes hold' 65 "E0725|$w|model.embed_tokens.weight" 'header $w "s/\[496,32\]/[496,31]/"'
row 'a dtype that nobody knows' 65 "E0723|$w|model.embed_tokens.weight" 'header $w "0,/BF16/s//BF17/"'
row 'a dtype that is no weight' 65 "E0310|$w|model.embed_tokens.weight" 'header $w "0,/BF16/s//I16/"'
row 'a tensor named twice in one header' 65 "E0711|$w|model.layers.0.mlp.up_proj.weight" \
    'header $w s/mlp.gate_proj/mlp.up_proj/'
row 'a key given twice in one tensor' 65 "E0711|$w" \
    'header $w "s/\"dtype\":\"BF16\",\"shape\":\[496,32\]/\"shape\":[496,32],\"shape\":[496,32]/"'
row 'no tensor at all' 65 "E0309|model" '{ u64 2; printf "{}"; } >$w'

# --- weights: not those of the model ---
row 'a missing tensor' 65 'E0309|model.norm.weight' 'header $w "s/,\"model.norm.weight\":{[^}]*}//"; truncate -s -64 $w'
row 'a tensor of an unknown name' 65 "E0311|$w|norm.weight" 'header $w "s/\"model.norm.weight\"/\"norm.weight\"/"'
row 'a missing layer' 65 'E0309|model.layers.2.' 'edit model/config.json "s/\"num_hidden_layers\": 2/\"num_hidden_layers\": 3/"'
row 'a layer too many' 65 "E0311|$w|model.layers.1." 'edit model/config.json "s/\"num_hidden_layers\": 2/\"num_hidden_layers\": 1/"'
row 'a tensor of another shape' 65 "E0310|$w|model.layers.0.mlp.down_proj.weight|72" 'header $w "s/\[32,72\]/[72,32]/"'
row 'config.json of another width' 65 "E0310|$w|[496, 32]|[496, 64]" 'edit model/config.json "s/\"hidden_size\": 32/\"hidden_size\": 64/"'
row 'a weight that is no number' 65 "E0312|$w|model.layers.0.mlp.down_proj.weight|element 3" \
    'poke_tensors $w $((31808 + 6)) "\300\177"'
row 'an infinite weight' 65 "E0312|$w|model.embed_tokens.weight|infinite" 'poke_tensors $w 0 "\200\177"'
row 'the last weight is no number' 65 "E0312|$w|not a number" 'poke_tensors $w $(($(stat -c %s $w) - $(header_bytes $w) - 10)) "\300\377"'
row 'generate meets a weight that is no number' 65 "E0312|$w" 'poke_tensors $w 4 "\300\177"' \
    generate --model model --prompt mill

# --- weights in several files ---
sharded='rm -r model; cp -r $fixtures/qwen2/model model'
index=model/model.safetensors.index.json
row 'an index that points out of its folder' 65 "E0308|$index|../|no file name inside the folder" \
    "$sharded; cp model/model-00001* .; edit $index 's|: \"model-00001|: \"../model-00001|'"
row 'an index that points to /' 65 "E0308|$index|/etc|no file name inside the folder" "$sharded; edit $index 's|: \"model-00001.*safetensors\"|: \"/etc/passwd\"|'"
row 'an index with a NUL in a file name' 65 "E0711|$index:|strings with NUL" "$sharded; nul $index model-00001-of-00003.safetensors"
row 'an index that names no file' 65 "E0308|$index|model-00002" "$sharded; rm model/model-00002*"
row 'an index without a map' 65 "E0308|$index|weight_map" "$sharded; edit $index s/weight_map/weights/"
row 'an index that is no JSON' 65 "E0711|$index" "$sharded; truncate -s -4 $index"
row 'a tensor in two files' 65 'E0309|twice' "$sharded; cp model/model-00001* model/model-00003*"
row 'weights in one of the files cut' 65 'E0726|model-00002' "$sharded; truncate -s -8 model/model-00002*"
row 'no weights' 65 'E0307|model|safetensors' 'rm $w'
row 'pickled weights alone' 65 'E0307|pickle' 'mv $w model/pytorch_model.bin'

# --- config.json ---
c=model/config.json
row 'config.json is no JSON' 65 "E0711|$c:" 'truncate -s -5 $c'
row 'config.json with a key twice' 65 "E0711|$c:" 'edit $c "s/\"mlp_bias\"/\"vocab_size\"/"'
for value in llama LlamaForCausalLM silu llama3 bfloat16; do
    row "a NUL behind $value in config.json" 65 "E0711|$c:|strings with NUL" "nul $c $value"
done
row 'config.json is a list' 65 "E0302|$c" 'echo "[]" >$c'
row 'an unknown family' 65 "E0302|$c|bloom|gemma3,|mistral3" 'edit $c "s/\"model_type\": \"llama\"/\"model_type\": \"bloom\"/"'
row 'no family' 65 "E0301|$c|model_type" 'edit $c "/model_type/d; /LlamaFor/d"'
row 'experts' 65 "E0302|$c|qwen3_moe|models of experts are not supported" 'edit $c "s/\"model_type\": \"llama\"/\"num_experts\": 8, \"model_type\": \"qwen3_moe\"/"'
row 'a key of another kind' 65 "E0302|$c|hidden_size" 'edit $c "s/\"hidden_size\": 32/\"hidden_size\": \"32\"/"'
row 'a missing key, so that the default of the family holds' 65 "E0310|$w|4096" 'edit $c /hidden_size/d'
row 'heads that do not divide' 65 "E0302|$c|num_key_value_heads" 'edit $c "s/\"num_key_value_heads\": 2/\"num_key_value_heads\": 3/"'
row 'an unsupported option' 65 "E0304|$c|hidden_act" 'edit $c "s/\"silu\"/\"gelu\"/"'
row 'an unsupported scaling' 65 "E0304|$c|proportional" 'edit $c "s/\"rope_type\": \"llama3\"/\"rope_type\": \"proportional\"/"'
row 'a type of layer that is unknown' 65 "E0304|$c|linear_attention" \
    'edit $c "s/\"model_type\"/\"layer_types\": [\"full_attention\", \"linear_attention\"], \"model_type\"/"'
row 'layer types for fewer layers' 65 "E0302|$c|layer_types" \
    'edit $c "s/\"model_type\"/\"layer_types\": [\"full_attention\"], \"model_type\"/"'

# --- [model.config] ---
random() {
    sed -i '/^path = "model"/d' job.toml
    printf '[model.config]\nmodel_type = "llama"\nhidden_size = 32\nnum_hidden_layers = 2\nnum_attention_heads = 4
num_key_value_heads = 2\nintermediate_size = 72\nvocab_size = 300\nmax_position_embeddings = 64\n' | sed "$1" >>job.toml
}
row '[model.config] with an unknown key' 78 'E0305|hidden_sized|did you mean|job.toml' 'random s/hidden_size/hidden_sized/'
row '[model.config] with heads that do not divide' 78 'E0302|num_key_value_heads|job.toml:' 'random "s/heads = 2/heads = 3/"'
row '[model.config] without a width' 78 'E0302|job.toml:' 'random /hidden_size/d'
row '[model.config] of another family' 78 'E0302|bloom|job.toml:' 'random s/\"llama\"/\"bloom\"/'
row '[model.config] beside model.path' 78 'error[E02|job.toml' 'random s/x/x/; sed -i "s/^\[model\]/&\npath = \"model\"/" job.toml'

# --- positions ---
row 'cutoff_len beyond the positions' 78 'E0215|cutoff_len|512|256|job.toml' 'edit job.toml "s/cutoff_len = 32/cutoff_len = 512/"'
row 'cutoff_len one beyond the positions' 78 'E0215|cutoff_len|65|64' 'random "s/x/x/"; edit job.toml "s/cutoff_len = 32/cutoff_len = 65/"'
row 'plan: cutoff_len beyond the positions' 78 'E0215|cutoff_len|512|256' 'edit job.toml "s/cutoff_len = 32/cutoff_len = 512/"' \
    plan --job job.toml --world 2

# --- tokenizer ---
t=model/tokenizer.json
row 'tokenizer.json cut' 65 "E0711|$t:" 'truncate -s -100 $t'
row 'tokenizer.json of no byte' 65 "E0711|$t:" ': >$t'
row 'tokenizer.json is a list' 65 "E0402|$t" 'echo "[]" >$t'
row 'a NUL in an added token' 65 "E0711|$t:|strings with NUL" 'nul $t "<|end_of_text|>"'
row 'tokenizer_config.json is a list' 65 "E0402|model/tokenizer_config.json|not a JSON object" 'echo "[1]" >model/tokenizer_config.json'
row 'a NUL in tokenizer_config.json' 65 "E0711|model/tokenizer_config.json:|strings with NUL" \
    'nul model/tokenizer_config.json "<|end_of_text|>"'
row 'tokenizer.json without a model' 65 "E0402|$t" 'edit $t "s/\"model\": {/\"modul\": {/"'
row 'a merge of parts that are no tokens' 65 "E0405|$t|merge" 'edit $t "s/\"h e\"/\"h qqq\"/"'
row 'a merge that is no pair' 65 "E0405|$t|merge" 'edit $t "s/\"h e\"/\"he\"/"'
row 'two tokens of one id' 65 "E0404|$t|one id" 'edit $t "s/\"#\": 2/\"#\": 1/"'
row 'a negative id' 65 "E0404|$t" 'edit $t "s/\"#\": 2/\"#\": -2/"'
row 'a pattern with a bracket left open' 65 "E0403|$t|pattern does not compile|missing closing" 'edit $t "s/(?i:/((?i:/"'
row 'an unknown pre-tokenizer' 65 "E0403|$t|Metaspace" 'edit $t "0,/\"type\": \"Split\"/s//\"type\": \"Metaspace\"/"'
row 'an unknown model' 65 "E0403|$t|Unigram" 'edit $t "s/\"type\": \"BPE\"/\"type\": \"Unigram\"/"'
row 'an end of text that is no token' 65 'E0408|model/tokenizer_config.json|<|nowhere|>' \
    'edit model/tokenizer_config.json "s/<|end_of_text|>/<|nowhere|>/"'
row 'a tokenizer with more ids than the vocabulary' 65 'E0447|model|495|300' 'random s/x/x/; sed -i "s/^\[model\]/&\ntokenizer = \"model\"/" job.toml'
row 'the tokenizer of a larger model' 65 'E0447|other|495' \
    'cp -r model other; rm -r model; cp -r $fixtures/mistral/model model; sed -i "s/^\[model\]/&\ntokenizer = \"other\"/" job.toml'
row 'generate: tokenizer.json cut' 65 "E0711|$t:" 'truncate -s -100 $t' generate --model model --prompt mill
done_rows
