#!/usr/bin/env bash
# Work that takes longer than a wait may is no hang: rank 1 waits for rank 0, which tokenizes, loads, saves, evaluates and exports.
#   test_long_work.sh ZEROD SOURCE_ROOT CALLS
source "$(dirname "$0")/lib.sh" "$1" "$2"
cp tests/reference/text.txt text.txt
cp tests/fixtures/llama_odd/data.bin eval.bin
sed -i '/^\[\[data.train\]\]/,/^$/d' job.toml
cat >>job.toml <<'END'
[[data.train]]
path = "text.txt"
format = "text"
[[data.eval]]
path = "eval.bin"
format = "nanogpt"
END
job=(--set train.max_steps=2 --set train.global_batch_size=2 --set eval.eval_steps=2 --set eval.eval_on_start=false
    --set checkpoint.save_steps=2 --set control.socket=none --set log.progress=none)

# late NAME RULES ARGUMENT...: RULES with MS for three halves of the limit, EACH for a tenth.
late() { together work_late "$@"; }
work_late() {
    local allowed=$((tries * tries)) rules
    rm -rf cache hits
    rules=${2//MS/$((allowed * 1500))} rules=${rules//EACH/$((allowed * 100))}
    ZEROD_TEST_HIT=hits ZEROD_TEST_RANK=0 LD_PRELOAD=$calls ZEROD_TEST_DELAY=$rules \
        run "$1" 2 "${job[@]}" --set comm.timeout=${allowed}s "${@:3}"
}
calls=$3
late work "fsync:/cache/:MS:1,pread:/model.safetensors:MS:1,mkdir:/.tmp-checkpoint:MS:1,fsync:/.tmp-checkpoint:MS:1,pread:/eval.bin:EACH:20,fsync:/hf.tmp:MS:1"
check "work that takes longer than comm.timeout is no hang" code_is 0
check "  nor an error" no_error
was_late() { [[ $(grep -c "^$1.*$2" hits) -eq $3 ]] || { cat hits; return 1; }; }
check "  rank 0 tokenized for so long" was_late fsync /cache/ 1
check "  loaded" was_late pread /model.safetensors 1
check "  began a save" was_late mkdir /.tmp-checkpoint 1
check "  wrote it" was_late fsync /.tmp-checkpoint 1
check "  evaluated" was_late pread /eval.bin 20
check "  exported" was_late fsync /hf.tmp 1
# Text that is tokenized while it is trained on, from a slow disk.
late data "pread:/cache/:MS:1" --set data.shuffle=windows --set data.packing=true
check "a wait for data that takes longer is no hang" code_is 0
check "  and is a state" grep -q '"state":"waiting_for_data"' data/events.jsonl
tests_end
