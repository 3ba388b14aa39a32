#!/usr/bin/env bash
# Broken data, and paths that lead nowhere or to no file, one row each. usage: test_bad_data.sh ZEROD SOURCE
. "$(dirname "$0")/bad_input.sh"

# data FILE [LINE]...: the job trains on it
data() {
    local file=$1
    shift
    sed -i "s|^path = \"data.txt\"|path = \"$file\"|" job.toml
    for line; do sed -i "/^path = \"$file\"/a $line" job.toml; done
}

# --- empty and too short ---
row 'empty text' 65 'E0439|data.txt' ': >data.txt'
row 'an empty file of tokens' 65 'E0439|data.bin' ': >data.bin; data data.bin "format = \"nanogpt\""'
row 'text of no whole sample' 65 'E0439|data.txt|5 tokens|33' 'echo "the mill" >data.txt'
row 'tokens of no whole sample' 65 'E0439|data.bin|32 tokens|33' 'head -c 64 /dev/zero >data.bin; data data.bin "format = \"nanogpt\""'
row 'records without one' 65 'E0439|data.jsonl' 'printf "\n" >data.jsonl; data data.jsonl "format = \"text\""'
row 'a source whose weight gives it no sample' 65 'E0439|data.txt|weight = 0.001' \
    'data data.txt "weight = 0.001"; printf "[[data.train]]\npath = \"data.txt\"\nweight = 9\n" >>job.toml'
row 'empty data for evaluation' 65 'E0439|eval.txt' ': >eval.txt; printf "[[data.eval]]\npath = \"eval.txt\"\n" >>job.toml'
row 'inspect: empty text' 65 'E0439|data.txt' ': >data.txt' data inspect job.toml

# --- text ---
row 'text that is not UTF-8' 65 'E0435|data.txt:2|offset 117' 'poke data.txt 117 "\377"'
row 'text that ends within a letter' 65 'E0435|data.txt:9|offset 880' 'truncate -s 880 data.txt; printf "\342\202" >>data.txt'

# --- records ---
row 'a line that is no JSON' 65 'E0711|data.jsonl:2' 'printf "{\"text\": \"a\"}\n{\"text\": \n" >data.jsonl; data data.jsonl'
row 'a line that is no object' 65 'E0436|data.jsonl:2' 'printf "{\"text\": \"a\"}\n[1]\n" >data.jsonl; data data.jsonl'
row 'an array of records that ends early' 65 'E0436|data.json:row 2|ends inside the array' 'printf "[{\"text\": \"a\"},\n{\"te" >data.json; data data.json'
row 'a record without its key' 65 'E0437|data.jsonl:2|text' 'printf "{\"text\": \"a\"}\n{\"txet\": \"b\"}\n" >data.jsonl; data data.jsonl'
row 'a key of another kind' 65 'E0437|data.jsonl:1|text' 'printf "{\"text\": 5}\n" >data.jsonl; data data.jsonl'
row 'records of no known kind' 65 'E0431|data.jsonl:1' 'printf "{\"words\": \"a\"}\n" >data.jsonl; data data.jsonl'
row 'an unknown role' 65 'E0438|data.jsonl:1|wizard' \
    'printf "{\"messages\": [{\"role\": \"wizard\", \"content\": \"a\"}]}\n" >data.jsonl; data data.jsonl'
row 'a message that is none' 65 'E0437|data.jsonl:1|message 1' 'printf "{\"messages\": [3]}\n" >data.jsonl; data data.jsonl'

# --- pre-tokenized ---
row 'a token beyond the vocabulary' 65 'E0442|token 7|496|data.bin: byte 14' \
    'head -c 200 /dev/zero >data.bin; poke data.bin 14 "\360\001"; data data.bin "format = \"nanogpt\""'
row 'the last token is beyond the vocabulary' 65 'E0442|token 2110|496|data.bin: byte 9464' \
    'cp $fixtures/llama/data.bin .; poke data.bin 9464 "\360\001"; data data.bin'
row 'half a token' 65 'E0445|data.bin|199' 'head -c 199 /dev/zero >data.bin; data data.bin "format = \"nanogpt\""'
row 'an llm.c file cut in its header' 65 'E0444|data.bin' 'head -c 1000 $fixtures/llama/data.bin >data.bin; data data.bin "format = \"llmc\""'
row 'an llm.c file cut in its tokens' 65 'E0444|data.bin|promises' 'head -c 5000 $fixtures/llama/data.bin >data.bin; data data.bin'
row 'an llm.c file of an unknown version' 65 'E0444|data.bin|version 9' 'cp $fixtures/llama/data.bin .; poke data.bin 4 "\011"; data data.bin "format = \"llmc\""'
megatron='cp $fixtures/qwen2/data.bin $fixtures/qwen2/data.idx .; data data.bin;'
row 'a token of a Megatron file beyond the vocabulary' 65 'E0442|token 5|496|data.bin: byte 10' "$megatron poke data.bin 10 '\360\001'"
row 'a Megatron index that is none' 65 'E0443|data.idx' "$megatron poke data.idx 0 X"
row 'a Megatron index cut' 65 'E0443|data.idx' "$megatron truncate -s -9 data.idx"
row 'a Megatron index of more tokens than there are' 65 'E0443|data' "$megatron truncate -s -100 data.bin"
row 'a Megatron index that points behind the data' 65 'E0443|data' "$megatron poke data.idx 600 '\377\377\377\177'"

# --- what does not exist ---
row 'no job file' 66 'none.toml' '' --job none.toml
row 'no job file to validate' 66 'none.toml' '' validate none.toml
row 'no data' 66 'E0219|none.txt|job.toml:' 'data none.txt'
row 'no file for a pattern' 66 'E0219|none*.txt|job.toml:' 'data "none*.txt"'
row 'no model' 66 'E0219|none|job.toml:' 'edit job.toml "s/path = \"model\"/path = \"none\"/"'
row 'no config.json' 66 'model/config.json' 'rm model/config.json'
row 'no tokenizer' 66 'E0219|none|job.toml:' 'sed -i "s/^\[model\]/&\ntokenizer = \"none\"/" job.toml'
row 'no checkpoint to resume from' 66 'E0219|none' '' --job job.toml --resume none
row 'must resume, and there is nothing' 66 'E0801|out' '' --job job.toml --resume must
row 'no model to generate with' 66 'none' '' generate --model none --prompt x
row 'no base of a job file' 66 'base.toml|job.toml:1' 'sed -i "1i extends = \"base.toml\"" job.toml'

# second PATH: another source of training
second() { printf '[[data.train]]\npath = "%s"\n' "$1" >>job.toml; }
row 'no data of the second source' 66 'E0219|none.txt|job.toml:19:8' 'second none.txt'
row 'no data of the second source for evaluation' 66 'E0219|none.txt|job.toml:21:8' \
    'printf "[[data.eval]]\npath = \"data.txt\"\n[[data.eval]]\npath = \"none.txt\"\n" >>job.toml'
row 'data of no folder here, which is no name of a hub' 66 'E0219|in/here.jsonl|relative to where zerod is started: /tmp/' 'data in/here.jsonl'
row 'data from another folder' 66 'E0219|none/a.txt|relative to where zerod is started: /tmp/' 'mkdir none; data none/a.txt'
row 'a data set of a hub' 66 'E0219|tatsu-lab/alpaca|hf download --repo-type dataset tatsu-lab/alpaca' 'data tatsu-lab/alpaca'
row 'a model of a hub' 66 'E0219|Qwen/Qwen2.5-0.5B|local files only|hf download Qwen/Qwen2.5-0.5B --local-dir Qwen/Qwen2.5-0.5B' \
    'edit job.toml "s|path = \"model\"|path = \"Qwen/Qwen2.5-0.5B\"|"'
row 'a tokenizer of a hub' 66 'E0219|hf download gpt2' 'sed -i "s/^\[model\]/&\ntokenizer = \"gpt2\"/" job.toml'
row 'a pattern that descends within a name' 78 'E0448|`**`|data/**/*.jsonl' 'data "a**.txt"'

# --- a pretrained model without a tokenizer ---
for command in '--job' validate; do
    row "$command: no tokenizer.json" 66 'E0401|model has no tokenizer.json|tokenizer = "bytes"' 'rm model/tokenizer*' $command job.toml
    row "$command: the tokenizer of another library" 66 'E0401|AutoTokenizer|save_pretrained' \
        'rm model/tokenizer*; : >model/tokenizer.model' $command job.toml
done

# --- what validate says of files ---
row 'validate: a damaged Parquet table' 65 'E0452|a.parquet|ends early' 'printf PAR1 >a.parquet; data a.parquet' validate job.toml
row 'validate: compressed data under another name' 65 'E0431|ends in .gz' 'gzip -c data.txt >a.txt; data a.txt' validate job.toml
row 'validate: compressed data that ends early' 65 'E0451|data.txt.gz|inside a gzip member' 'gzip data.txt; truncate -s -9 data.txt.gz; data data.txt.gz' validate job.toml
row 'validate: an empty folder' 65 'E0454|data.d holds no data file' 'mkdir data.d; data data.d' validate job.toml
row 'validate: a folder without such a split' 65 'E0454|data.d has no split "dev"; it has train, test|split = ' \
    'mkdir data.d; cp data.txt data.d/train.txt; cp data.txt data.d/test.txt; data data.d "split = \"dev\""' validate job.toml
row 'validate: a table in CSV' 78 'E0431|a.csv|format = "text"' 'cp data.txt a.csv; data a.csv' validate job.toml
row 'a table in CSV' 78 'E0431|a.csv|format = "text"' 'cp data.txt a.csv; data a.csv'
row 'validate: a line far down' 65 'E0711|a.jsonl:201:' \
    '{ yes "{\"text\": \"some text\"}" | head -200; echo "{"; } >a.jsonl; data a.jsonl' validate job.toml
row 'validate: nothing is trained' 65 'E0449|a.jsonl|train_on' \
    'yes "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}" | head -50 >a.jsonl; data a.jsonl' validate job.toml
row 'validate: empty data for evaluation' 65 'E0439|eval.txt' \
    ': >eval.txt; printf "[[data.eval]]\npath = \"eval.txt\"\n[eval]\neval_strategy = \"epoch\"\n" >>job.toml' validate job.toml
row 'validate: a record of two forms' 65 'E0431|two forms|a.jsonl:1' \
    'printf "{\"text\": \"a\", \"messages\": []}\n" >a.jsonl; data a.jsonl' validate job.toml
row 'a template that prints nothing' 65 'E0439|no row of a.jsonl gives any text|the chat template prints nothing' \
    'echo "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}" >a.jsonl; data a.jsonl; : >model/chat_template.jinja'
row 'validate: a template that is none' 78 'E0434|has the markers of none|data.chat_template' \
    'cp -r $fixtures/tokenizers/prefix_space tok; sed -i "s/^\[model\]/&\ntokenizer = \"tok\"/" job.toml
     printf "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n" >a.jsonl; data a.jsonl' validate job.toml

# --- a folder, FIFO or device where a file belongs ---
# instead NAME FILE SETUP-BEFORE ARGUMENT...: the same for the three
instead() {
    local what=$1 file=$2 setup=$3 code=$4
    shift 4
    case $what in data | tokens) folder="E0454|$file holds no data file" ;; *) folder="E0703|$file is a directory" ;; esac
    row "a folder for $what" "$code" "$folder" "$setup rm -rf $file; mkdir $file" "$@"
    row "a FIFO for $what" "$code" "E0703|$file is a FIFO" "$setup rm -rf $file; mkfifo $file" "$@"
    row "a device for $what" "$code" "E0703|$file is a device" "$setup rm -rf $file; ln -s /dev/zero $file" "$@"
}
instead 'the job file' job.toml '' 65
instead 'data' data.txt '' 65
instead 'tokens' data.bin 'data data.bin "format = \"nanogpt\"";' 65
instead 'weights' model/model.safetensors '' 65
instead 'config.json' model/config.json '' 65
instead 'tokenizer.json' model/tokenizer.json '' 65
row 'a FIFO for the model' 65 'model' 'rm -r model; mkfifo model'
row 'a file for the model' 65 'model' 'rm -r model; echo >model'
row 'a FIFO for the checkpoint' 65 'E0801|ckpt|not a folder' 'mkfifo ckpt' ckpt verify ckpt
row 'a FIFO to resume from' 65 'E0801|ckpt|not a folder' 'mkfifo ckpt' --job job.toml --resume ckpt
row 'a device to resume from' 65 'E0801|/dev/zero|not a folder' '' --job job.toml --resume /dev/zero
row 'a FIFO for the output' 73 'fifo' 'mkfifo fifo; edit job.toml "s/\"out\"/\"fifo\"/"'
for file in metrics.jsonl events.jsonl; do
    row "a FIFO for $file" 73 "E0731|out/$file is a FIFO" "mkfifo out/$file"
    row "a FIFO for $file, resumed" 73 "E0731|out/$file is a FIFO" \
        "'$zerod' --job job.toml >log 2>&1; rm out/$file; mkfifo out/$file; sed -i 's/max_steps.*/max_steps = 3/' job.toml"
    row "a link for $file" 73 "E0731|out/$file is a link" "ln -s /dev/null out/$file"
done
row 'a file above the output' 73 'E0708|data.txt' 'edit job.toml "s/\"out\"/\"data.txt\/out\"/"'
done_rows
