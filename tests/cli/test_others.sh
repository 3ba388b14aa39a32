#!/usr/bin/env bash
# Others on the same machine: what another user puts in our way is neither run, nor believed, nor written to. Who the other
# is, is a second uid where the test runs as root; those rows are skipped elsewhere.
# usage: test_others.sh ZEROD SOURCE ZERODCTL
source_root=$(realpath "$2") ctl=$(realpath "$3")
. "$2/tests/cli/lib.sh"
chmod 0711 "$work"
other=65534
[ "$(id -u)" = 0 ] && setpriv --reuid "$other" --regid "$other" --clear-groups true 2>/dev/null
is_root=$?
as_other() { setpriv --reuid "$other" --regid "$other" --clear-groups "$@"; }
# ok_other NAME COMMAND...: as ok, where there can be another user
ok_other() {
    if [ $is_root = 0 ]; then ok "$@"; else skip "$1" "not root: there is no other user"; fi
}

# --- what deploy/bundle-env.sh sources
mkdir -p payload/bin bundle
echo ours >payload/commit
tar -C payload -cf - . | xz >bundle/payload.tar.xz
chmod 0755 bundle
bundle_name=zerod-bundle-$(stat -c '%Y-%s' bundle/payload.tar.xz)
# unpacked CODE [NAME=VALUE...]: sourced with these; the folder in `out`, then what it holds
unpacked() {
    local want=$1 code
    shift
    env -u ZEROD_BUNDLE_DIR -u XDG_CACHE_HOME HOME="$work/home" TMPDIR="$work/shared" PATH="$PATH" "$@" \
        bash -c "source '$source_root/deploy/bundle-env.sh' bundle || exit; echo \"\$BUNDLE\"; cat \"\$BUNDLE/commit\"" >out 2>err
    code=$?
    [ $code = "$want" ] || { echo "exit $code, not $want"; return 1; }
}
mkdir -m 1777 shared
mkdir home
# plants FOLDER: as the other user, what a bundle looks like
plants() { as_other sh -c "mkdir -p '$1' && echo theirs >'$1/commit'"; }
[ $is_root != 0 ] || plants "shared/$bundle_name"
ok 'a bundle is unpacked below the cache folder' eval 'unpacked 0 && has "^$work/home/.cache/zerod/bundle-" out && has "^ours$" out'
ok '  for this user alone' eval '[ "$(stat -c %a "$(sed -n 1p out)")" = 700 ]'
ok '  once' eval 'touch "$(sed -n 1p out)/here" && unpacked 0 && [ -e "$(sed -n 1p out)/here" ]'
chmod 0777 "$(sed -n 1p out)"
ok '  and not taken where others may write: 77' unpacked 77
ok_other "another user's folder of that name is not taken: 77" eval \
    'plants shared/named && unpacked 77 ZEROD_BUNDLE_DIR="$work/shared/named"'
ok_other "  nor one of ours behind another's link" eval \
    'mkdir -m 0700 mine && echo ours >mine/commit && as_other ln -s "$work/mine" shared/link &&
     unpacked 77 ZEROD_BUNDLE_DIR="$work/shared/link"'
ok_other "  nor the cache folder of another" eval \
    'as_other mkdir -p shared/cache/zerod && chmod 0777 shared/cache/zerod && unpacked 77 XDG_CACHE_HOME="$work/shared/cache"'
ok 'without a home: a new folder' eval \
    'unpacked 0 HOME= && has "^/tmp/zerod-bundle\." out && has "^ours$" out && rm -rf "$(dirname "$(sed -n 1p out)")"'

# --- text of others on a terminal
# on_terminal CODE COMMAND...: what a terminal gets of it, in `out`; nothing of it may be a control code or turn text
on_terminal() {
    local want=$1 code
    shift
    TERM=xterm NO_COLOR=1 script -qec "$*" /dev/null </dev/null >out 2>err
    code=$?
    [ $code = "$want" ] || { echo "exit $code, not $want"; cat out; return 1; }
    tr -d '\r\n\t' <out | python3 -I -c '
import sys, unicodedata
text = sys.stdin.buffer.read().decode("utf-8")
odd = [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
sys.exit("control codes: %r in %r" % (odd, text) if odd or not text else 0)'
}
# ESC [ 31 m; CSI as C1; OSC 0, which gives the window a title; a turned word; half a character
bad=$(printf 'a\033[31mb\302\2331mc\033]0;x\007d\342\200\256e\303')
printf 'x = 1 # %s\n' "$bad" >bad.toml
printf 'y' >"$bad"
if command -v script >/dev/null; then
    ok 'an error on a terminal: no control code' on_terminal 78 "'$zerod'" validate bad.toml
    ok '  nor in the name of a file' on_terminal 66 "'$zerod'" validate "'$bad.toml'"
    ok '  nor behind an option' on_terminal 78 "'$zerod'" plan --world 1 --job bad.toml --set "'$bad=1'"
    ok 'zerodctl: no control code' on_terminal 66 "'$ctl'" --dir "'$bad'" status
else
    skip 'text of others on a terminal' 'there is no script(1)'
fi

# --- whose job answers
# listens FOLDER UID: another user's process behind FOLDER/squat.sock says yes to everything; what it was sent is in FOLDER.got
cat >listen.py <<'END'
import json, os, socket, sys
folder, uid, got = sys.argv[1], int(sys.argv[2]), open(sys.argv[3], "ab", 0)
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
os.makedirs(folder, exist_ok=True)
server = socket.socket(socket.AF_UNIX)
server.bind(folder + "/squat.sock")
os.chmod(folder + "/squat.sock", 0o777)
server.listen(8)
print(os.getpid(), flush=True)
while True:
    client, _ = server.accept()
    data = client.recv(65536)
    got.write(data)
    body = json.dumps({"pid": 4711, "job": "squat", "state": "running", "result": {}}).encode()
    if data:
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    client.close()
END
listener=
stop_listener() { [ -z "$listener" ] || { kill "$listener"; wait "$listener"; } 2>/dev/null; listener=; }
listens() {
    stop_listener
    : >"$1.got"
    rm -f "$1.pid"
    mkfifo "$1.pid"
    python3 listen.py "$1" "$2" "$1.got" >"$1.pid" 2>listen.err &
    listener=$!
    read -r _ <"$1.pid" || { cat listen.err; return 1; }
}
# refused CODE WORD FOLDER ARGUMENT...: zerodctl ends so, says the word, and nothing was sent
refused() {
    local want=$1 word=$2 folder=$3 code
    shift 3
    timeout 60 "$ctl" "$@" >out 2>err </dev/null
    code=$?
    [ $code = "$want" ] && grep -q "$word" err && [ ! -s "$folder.got" ] ||
        { echo "exit $code, not $want; sent: $(cat "$folder.got")"; cat out; return 1; }
}
if [ $is_root = 0 ]; then
    mkdir -m 1777 runtime
    ok 'a folder of sockets that another user made first' listens "$work/runtime/zerod" "$other"
    export XDG_RUNTIME_DIR="$work/runtime"
    ok '  -j: it is not asked: 77' refused 77 E1094 "$work/runtime/zerod" -j squat status
    ok '  and gets no prompt' refused 77 E1094 "$work/runtime/zerod" -j squat sample 'a secret'
    ok '  it is no job that runs' refused 66 E1090 "$work/runtime/zerod" status
    # ours, but a socket in it is theirs
    mkdir -m 0777 mixed
    ok "a socket of another user's in a folder of ours" listens "$work/mixed/zerod" "$other"
    chown 0:0 mixed/zerod
    export XDG_RUNTIME_DIR="$work/mixed"
    ok '  is not asked: 77' refused 77 E1094 "$work/mixed/zerod" -j squat status
    # named by a status.json that others may write
    mkdir -m 0777 shared_out
    printf '{"pid": 4711, "state": "running", "job": "x", "socket": "%s", "host": "h"}' "$work/mixed/zerod/squat.sock" \
        >shared_out/status.json
    ok "the socket that a status.json names is another user's: the files answer, and it is told" \
        refused 69 'another user' "$work/mixed/zerod" --dir shared_out sample 'a secret'
    rm -rf runtime/zerod
    listens "$work/runtime/zerod" "$other" >log
    ok "-S names another user's job: 77" refused 77 E1094 "$work/runtime/zerod" -S "$work/runtime/zerod/squat.sock" sample 'a secret'
    stop_listener
else
    skip "another user's sockets" 'not root: there is no other user'
fi

# --- what lies in output_dir, and what is copied into it
unset XDG_RUNTIME_DIR
sed -e 's|^\[job\]|[job]\noutput_dir = "made"|' -e 's|^\[data\]|[data]\ncache_dir = "cache"|' -e 's|tests/fixtures|fixtures|' \
    "$source_root/tests/fixtures/llama_odd/job.toml" >job.toml
mkdir fixtures && cp -r "$source_root/tests/fixtures/llama_odd" fixtures/
# runs CODE OPTION...: one step; what is told in `err`
runs() {
    rm -rf made
    [ -z "$prepare" ] || eval "$prepare"
    call "$1" --job job.toml --max-steps 1 --set train.global_batch_size=4 --set control.socket=none "${@:2}" ||
        { tail -3 err; return 1; }
}
is_mode() { [ "$(stat -c %a "$1")" = "$2" ] || { stat -c '%a %n' "$1"; return 1; }; }
prepare='umask 022'
ok 'output_dir is 0750' eval 'runs 0 && is_mode made 750'
ok '  job.output_mode is another, whatever the umask' eval \
    '(umask 077; prepare=; runs 0 --set job.output_mode=02770 --set job.output_dir=made/of/ten) && is_mode made/of/ten 2770'
ok '  and one that exists keeps its own' eval "prepare='mkdir -m 0711 made'; runs 0 && is_mode made 711"
ok '  a mode that is none: 78' eval 'prepare=; runs 78 --set job.output_mode=0123'
# linked NAME [OPTION]...: a link in the place of made/NAME is refused, and the file behind it stays as it was
linked() {
    local name=$1
    shift
    echo precious >victim
    prepare='mkdir -p "$(dirname "made/$name")" && ln -s "$work/victim" "made/$name"'
    runs 73 "$@" && has 'is a link' err && [ "$(cat victim)" = precious ]
}
ok 'a link in the place of metrics.jsonl: 73, and nothing is written' linked metrics.jsonl
ok '  of events.jsonl' linked events.jsonl
ok '  of a log' linked logs/rank-00000.log --set log.rank_logs=files
ok '  of the folder of logs' eval 'mkdir -p elsewhere; prepare="mkdir made; ln -s ../elsewhere made/logs"
    runs 73 --set log.rank_logs=files && [ -z "$(ls elsewhere)" ]'
prepare=
echo secret >fixtures/secret
model=fixtures/llama_odd/model
ln -s ../../secret $model/chat_template.jinja
ok "a model's link out of its folder: 65, and nothing of it is copied" eval 'runs 65 && has E0316 err && ! grep -rqs secret made'
rm $model/chat_template.jinja
echo template >$model/original
ln -s original $model/chat_template.jinja
ok '  one within it is' eval 'runs 0 && has template made/hf/chat_template.jinja'
rm $model/chat_template.jinja
# as huggingface_hub lays a model out
mkdir -p hub/models--x/blobs hub/models--x/snapshots
echo blob >hub/models--x/blobs/abc
cp -r $model hub/models--x/snapshots/rev
ln -s ../../blobs/abc hub/models--x/snapshots/rev/chat_template.jinja
ok '  and one to a blob of the hub' eval 'runs 0 --set model.path=hub/models--x/snapshots/rev && has blob made/hf/chat_template.jinja'
mkdir local && cp -r $model local/model
ln -s "$work/hub/models--x/blobs/abc" local/model/chat_template.jinja
ok '  of which it is a snapshot' runs 65 --set model.path=local/model
tests_end
