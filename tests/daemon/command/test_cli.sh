#!/bin/sh
# The binary from outside: exit codes, what goes to stdout, what to stderr. TAP.
# usage: test_cli.sh ZEROD
zerod=$(readlink -f "$1")
dir=$(mktemp -d /tmp/zerod-XXXXXX) || exit 99 # not below a long TMPDIR: a socket's path has 107 bytes
export XDG_RUNTIME_DIR="$dir" # jobs of equal names that run beside each other do not meet
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 99
n=0

# check NAME WANT_CODE WANT_STDOUT(empty|some|any) WANT_ERRORS COMMAND...
check() {
    name=$1 want=$2 out=$3 errors=$4
    shift 4
    "$@" >stdout 2>stderr
    code=$?
    n=$((n + 1)) why=
    [ "$code" = "$want" ] || why="exit $code, not $want"
    [ "$out" != empty ] || [ ! -s stdout ] || why="$why; stdout is not empty"
    [ "$out" != some ] || [ -s stdout ] || why="$why; stdout is empty"
    found=$(grep -c '^error' stderr)
    [ "$found" = "$errors" ] || why="$why; $found lines begin with error"
    if grep -q "$(printf '\033')" stdout stderr; then
        why="$why; escape codes"
    fi
    if [ -z "$why" ]; then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name # $why"
        sed 's/^/# /' stderr
    fi
}

# said NAME TEXT: stderr of the last command says TEXT
said() {
    n=$((n + 1))
    if grep -qF -e "$2" stderr; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        sed 's/^/# /' stderr
    fi
}

seq 100 >text.txt
cat >good.toml <<'END'
[model.config]
model_type = "llama"
hidden_size = 64
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
intermediate_size = 128
vocab_size = 300
max_position_embeddings = 64
[data]
cutoff_len = 64
[[data.train]]
path = "text.txt"
END
printf '[train]\nmax_step = 5\n[zero]\nstage = 8\n' | cat - good.toml >bad.toml
printf '[optim]\nlr = 1\n' | cat - good.toml >alias.toml
printf '[optim]\nname = "paged_adamw"\n' | cat - good.toml >named.toml

check 'a valid file' 0 some 0 "$zerod" validate good.toml
check 'validate --print' 0 some 0 "$zerod" validate good.toml --world 3 --print
check 'validate as JSON' 0 some 0 "$zerod" validate good.toml --format json --print
check 'two mistakes, nothing on stdout' 78 empty 2 "$zerod" validate bad.toml --print
said 'file, line and column' 'bad.toml:2:1'
check 'an alias is noted' 0 some 0 "$zerod" validate alias.toml
said 'by name' '`lr`'
check 'an optimizer by another name' 0 some 0 "$zerod" validate named.toml --print
said 'what it became' 'is read as "paged_adamw_32bit"'
check 'no such file' 66 empty 1 "$zerod" validate none.toml
check 'a folder' 65 empty 1 "$zerod" validate .
check '--set' 0 some 0 "$zerod" validate good.toml --set train.max_steps=7
check '--set of a bad value' 78 empty 1 "$zerod" validate good.toml --set train.max_steps=x
check '--set of a bad key' 78 empty 1 "$zerod" validate good.toml --set train.steps_max=1
check '--set without =' 64 empty 1 "$zerod" validate good.toml --set train.max_steps
check '--world 0' 64 empty 1 "$zerod" validate good.toml --world 0
check '--world x' 64 empty 1 "$zerod" validate good.toml --world x
check 'no command' 64 empty 1 "$zerod"
check 'no such command' 64 empty 1 "$zerod" validat good.toml
said 'did you mean' '`validate`'
check 'half a command' 64 empty 1 "$zerod" ckpt
check 'no such option' 64 empty 1 "$zerod" validate good.toml --wrold 2
said 'did you mean' '`--world`'
check 'a missing operand' 64 empty 1 "$zerod" validate
check 'a missing option' 64 empty 1 "$zerod" generate --model .
check 'one operand too many' 64 empty 1 "$zerod" validate good.toml bad.toml
check 'an option without its value' 64 empty 1 "$zerod" run --job
check 'a flag with a value' 64 empty 1 "$zerod" run --job=good.toml -q --no-progress=1
check 'a choice' 64 empty 1 "$zerod" export x -o y --dtype int8
check 'help' 0 some 0 "$zerod" --help
check 'help of a command' 0 some 0 "$zerod" ckpt ls --help
check 'version' 0 some 0 "$zerod" --version
check 'version as JSON' 0 some 0 "$zerod" --version --json
check 'plan' 0 some 0 "$zerod" plan --job good.toml --world 4
check 'plan as JSON' 0 some 0 "$zerod" plan good.toml --world 4 --format json
check 'a full disk' 74 any 1 sh -c '"$0" validate good.toml --print >/dev/full' "$zerod"
check 'a reader that went away' 74 any 0 sh -c 'mkfifo gone; exec 3<>gone 4>gone 3<&-; "$0" validate good.toml --print >&4' "$zerod"
check 'stdout closed' 74 any 1 sh -c '"$0" --version >&-' "$zerod"
check 'generate without a model' 66 empty 1 "$zerod" generate --model none --prompt x
check 'export without a checkpoint' 66 empty 1 "$zerod" export none -o out
check 'ckpt show without a checkpoint' 66 empty 1 "$zerod" ckpt show none
echo short >short.txt
check 'data inspect' 65 any 1 "$zerod" data inspect good.toml --set 'data.train=[{path="short.txt"}]'
printf '[x' >broken.toml
check 'no TOML' 78 empty 1 "$zerod" --job broken.toml
mkfifo fifo
check 'a FIFO is refused at once' 65 empty 1 "$zerod" validate fifo
echo "1..$n"
