#!/usr/bin/env bash
# Others on the same machine: what another user puts in our way is neither run, nor believed, nor written to. Who the other
# is, is a second uid where the test runs as root; those rows are skipped elsewhere.
# usage: test_others.sh ZEROD SOURCE CASES ZERODCTL
source_root=$(realpath "$2") ctl=$(realpath "$4")
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
    tr -d '\r\n\t' <out | python3 -c '
import sys, unicodedata
text = sys.stdin.buffer.read().decode("utf-8")
odd = [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
sys.exit("control codes: %r in %r" % (odd, text) if odd or not text else 0)'
}
# ESC [ 31 m; CSI as C1; OSC 0, which gives the window a title; a turned word; half a character
bad=$(printf 'a\033[31mb\302\2331mc\033]0;x\007d\342\200\256e\303')
printf 'x = 1 # %s\n' "$bad" >bad.toml
printf 'y' >"$bad"
printf 'a\033[\302\233\342\202\254\303\251\n' >text.txt
words=$source_root/tests/fixtures/tokenizers/gpt2
if command -v script >/dev/null; then
    ok 'an error on a terminal: no control code' on_terminal 78 "'$zerod'" validate bad.toml
    ok '  nor in the name of a file' on_terminal 66 "'$zerod'" validate "'$bad.toml'"
    ok '  nor behind an option' on_terminal 78 "'$zerod'" plan --world 1 --job bad.toml --set "'$bad=1'"
    ok 'text of tokens on a terminal: no control code' eval '
        call 0 data encode --tokenizer "$words" text.txt && mv out ids.txt &&
        on_terminal 0 "$zerod" data decode --tokenizer "$words" ids.txt'
    ok '  and characters whole' has '^a\\x1b\[\\u\{9b\}€é' out
    ok 'zerodctl: no control code' on_terminal 66 "'$ctl'" --dir "'$bad'" status
else
    skip 'text of others on a terminal' 'there is no script(1)'
fi
ok 'in a file tokens are the bytes that they are' eval 'call 0 data decode --tokenizer "$words" ids.txt && cmp text.txt out'
tests_end
