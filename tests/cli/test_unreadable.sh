#!/usr/bin/env bash
# Checkpoints that cannot be opened or read, which says nothing of what is in them: the run ends with 74, and every byte of
# `out` stays. And what no run replaces or removes untold. usage: test_unreadable.sh ZEROD SOURCE CALLS
calls=$(realpath "$3")
. "$(dirname "$0")/bad_input.sh"
two_checkpoints
more='--job job.toml --set train.max_steps=3'
ENOENT=2 EIO=5 ENOMEM=12 EACCES=13 ENFILE=23 EMFILE=24

# The program with calls that are refused: $rule is ZEROD_TEST_REFUSE, of tests/support/calls.c.
real=$zerod rule=
cat >"$dir/refusing" <<END
#!/bin/sh
LD_PRELOAD=$calls exec "$real" "\$@"
END
chmod +x "$dir/refusing"
refuse() { export ZEROD_TEST_REFUSE="$1"; zerod=$dir/refusing; }
allow() { unset ZEROD_TEST_REFUSE; zerod=$real; }

for rule in "open:$c/shard:$EMFILE" "open:$c/shard:$ENFILE" "open:$c/shard:$ENOMEM" "open:$c/shard:$EIO" \
    "open:$c/shard:$EACCES" "stat:$c/shard:$EIO" "pread:$c/shard:$EIO" "open:$c/manifest:$EMFILE" \
    "stat:$c/manifest:$EACCES" "pread:$c/manifest:$EIO" "open:$c/config:$EIO"; do
    refuse "$rule"
    row "auto: $rule" 74 "E0813|$c" '' $more
    row "must: $rule" 74 "E0813|$c" '' $more --resume must
    row "path: $rule" 74 "E0813|$c" '' $more --resume $c
done
refuse "open:$c/shard:$EMFILE"
row 'what to do without descriptors' 74 'E0813|Too many open files|ulimit -n' '' $more
row 'verify: no descriptor' 74 'E0706|Too many open files' '' ckpt verify $c
row 'export: no descriptor' 74 'E0706|Too many open files' '' export $c -o model2
refuse "stat:$c:$EIO"
row 'the folder itself: EIO' 74 "E0813|$c" '' $more
refuse "opendir:out:$EMFILE"
row 'output_dir cannot be listed: EMFILE' 74 'E0706|out' '' $more
refuse "stat:peft/adapter_config.json:$EACCES"
row 'an adapter that may not be read' 77 'E0702|adapter_config.json' 'mkdir peft' generate --model model --adapter peft --prompt a
refuse "open:out/.zerod.lock:$EACCES"
row 'an output_dir that may not be written' 77 'E0733|out/.zerod.lock|Permission denied' '' $more
refuse "stat:out/events.jsonl:$EIO"
row 'events.jsonl cannot be looked at' 74 'E0706|out/events.jsonl' '' $more
allow

# --- not rows: what follows trains ---
fresh() { rm -rf "$dir/work"; cp -r "$dir/sound" "$dir/work" && cd "$dir/work" || exit 99; }
train() { timeout -k 1 100 "$zerod" --job job.toml "$@" >"$dir/stdout" 2>err; }
sums() { (cd out && find "$@" -type f -exec cksum {} + 2>&1 | sort); }
has() { local each; for each; do [ -d "out/checkpoint-00000$each" ] || return 1; done; }

fresh
before=$(sums checkpoint-* metrics.jsonl events.jsonl)
refuse "stat:out/metrics.jsonl:$EIO"
train --set train.max_steps=3
code=$?
allow
ok 'metrics.jsonl cannot be looked at: 74' [ $code = 74 ]
ok 'and none of its rows goes' [ "$before" = "$(sums checkpoint-* metrics.jsonl events.jsonl)" ]

# A folder that cannot be read to its end has perhaps another checkpoint: every readdir of the start in turn, and
# those by which an export removes what it has replaced.
fresh
whole=0
for ((i = 1; i < 100; i++)); do
    before=$(sums checkpoint-*)
    refuse "readdir:/out:$EIO:$i"
    train --set train.max_steps=3
    code=$?
    allow
    [ $code != 0 ] || break
    [ $code = 74 ] && [ "$before" = "$(sums checkpoint-*)" ] && grep -qE '^error\[E070[69]\].*out' err || whole=1
done
ok "readdir fails at every entry, $i of them: 74 and nothing is touched" [ "$whole $((i > 10))" = '0 1' ]
ok 'and without a failure the run goes on' grep -q 'checkpoint-000002' err

# Descriptors, fewer and fewer: the checkpoint's manifest, or its shard, is refused as what cannot be read.
fresh
before=$(sums checkpoint-*)
kept=0 refused=0
for ((i = 4; i < 60; i++)); do
    (ulimit -n $i; train --set train.max_steps=3 --set checkpoint.export=none)
    code=$?
    [ $code != 0 ] || break
    [ "$before" = "$(sums checkpoint-*)" ] && [ $code -lt 128 ] || kept=$i
    if [ $code = 74 ] && grep -q '^error\[E0813\].*Too many open files' err; then refused=$((refused + 1)); fi
done
ok "below $i descriptors nothing is trained and no signal ends it; $refused of the refusals are the checkpoint's" \
    [ "$kept $((refused >= 1 && i < 32))" = '0 1' ]
ok 'with enough the run goes on from it' grep -q 'checkpoint-000002' err
ok 'as the step behind it' [ "$(sed -n 's/.*"step":\([0-9]*\),"loss".*/\1/p' out/metrics.jsonl | tr '\n' ' ')" = '1 2 3 ' ]

# The lock of output_dir, which zerodctl shares for a moment to see whether it is held.
fresh
refuse "flock:.zerod.lock:11:1"
train --set train.max_steps=3
code=$?
allow
ok 'a lock that somebody shares for a moment is waited for' [ $code = 0 ]

# ckpt ls tells what it cannot read from what is damaged.
fresh
truncate -s -4 out/checkpoint-000001/$shard
refuse "open:$c/shard:$EIO"
timeout 100 "$zerod" ckpt ls out >"$dir/stdout" 2>err
code=$?
allow
ok 'ls: 74 where one cannot be read' [ $code = 74 ]
ok 'ls: ? for it' grep -qE '^2 .* \? +out/checkpoint-000002$' "$dir/stdout"
ok 'ls: BAD for the damaged one' grep -qE '^1 .* BAD +out/checkpoint-000001$' "$dir/stdout"

# Retention: one that cannot be read may be the best, or one of the last that are sound.
fresh
refuse "pread:out/checkpoint-000001/:$EIO"
train --set train.max_steps=5 --set checkpoint.save_steps=1 --set checkpoint.save_total_limit=1 --set checkpoint.export=none
code=$?
allow
ok 'retention: the run goes on' [ $code = 0 ]
ok 'retention: nothing goes while one cannot be read' has 1 2 3 4 5
ok 'retention: said' grep -q 'old checkpoints stay: .*checkpoint-000001' err
train --set train.max_steps=6 --set checkpoint.save_steps=1 --set checkpoint.save_total_limit=1 --set checkpoint.export=none
ok 'retention: when it can be read, old ones go' [ "$(echo out/checkpoint-*)" = 'out/checkpoint-000005 out/checkpoint-000006' ]

# Back to an older checkpoint: what is later is said first, stays, and does not push out what this run saves.
fresh
train --set train.max_steps=5 --set checkpoint.save_steps=1 --set checkpoint.save_total_limit=0 --set checkpoint.export=none
before=$(sums checkpoint-000003 checkpoint-000004 checkpoint-000005)
train --resume out/checkpoint-000001 --stop-after 2 --set train.max_steps=5 --set checkpoint.save_steps=1 \
    --set checkpoint.save_total_limit=1 --set optim.learning_rate=1e-3
ok 'going back: what is later is named first' \
    grep -q 'goes back to step 1: it replaces, in out, checkpoint-000002 to checkpoint-000005 (4)' err
ok 'going back: the new checkpoint stays' has 1 2
ok 'going back: and says the learning rate of the branch' grep -q '"optim.learning_rate": 0.001' out/checkpoint-000002/manifest.json
ok 'going back: later ones are as they were' \
    [ "$before" = "$(sums checkpoint-000003 checkpoint-000004 checkpoint-000005)" ]
# Where two folders cannot change places, the old one makes way: it is back when the new one does not come.
before=$(sums checkpoint-000003)
for rule in "rename:out/checkpoint-000003:$EIO:1" "rename:out/checkpoint-000003:-9:1"; do
    refuse "$rule"
    ZEROD_TEST_NO_EXCHANGE=1 train --resume out/checkpoint-000002 --stop-after 3 --set train.max_steps=5 \
        --set checkpoint.export=none
    code=$?
    allow
    ok "going back: $rule ends it" [ $code != 0 ]
    train --resume out/checkpoint-000005 --set train.max_steps=5 --set checkpoint.export=none
    ok '  and what was to be replaced is there' [ "$before" = "$(sums checkpoint-000003)" ]
done
refuse none
ZEROD_TEST_NO_EXCHANGE=1 train --resume out/checkpoint-000002 --stop-after 3 --set train.max_steps=5 \
    --set checkpoint.save_steps=1 --set checkpoint.export=none --set optim.learning_rate=1e-3
ok 'going back without a hitch replaces it' grep -q '"optim.learning_rate": 0.001' out/checkpoint-000003/manifest.json
ok '  and leaves nothing behind' [ -z "$(ls -d out/.replaced-* 2>/dev/null)" ]
allow
refuse "open:job.toml:$EIO:2"
train --set train.max_steps=6
ok 'the job file is opened once' [ $? = 0 ]
allow
ok 'later ones are where auto goes on' grep -q 'checkpoint-000005' err
tests_end
