# bad_input.sh - what tests of bad input have in common; sourced by them.
#
#   row NAME CODE SAID SETUP [ARGUMENT]...
#
# Copies the sound job of this file to a fresh folder, damages it there by SETUP (shell text) and runs
# "zerod ARGUMENT..." ("--job job.toml" without one) for at most 100 s. It has to end with CODE, one line that begins
# with "error[E", nothing on stdout, every part of SAID (parted by |) on stderr, and no byte of the folder `out`
# changed: what an earlier run left there. One line of TAP tells.
zerod=$(realpath "$1")
fixtures=$2/tests/fixtures
. "$2/tests/support/small_job.sh"
. "$2/tests/support/tap.sh"
dir=$(mktemp -d /tmp/zerod-XXXXXX) || exit 99 # not below a long TMPDIR: a socket's path has 107 bytes
export XDG_RUNTIME_DIR="$dir" # jobs of equal names that run beside each other do not meet
trap 'rm -rf "$dir"' EXIT
export LC_ALL=C.UTF-8 OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# --- damage ---

# poke FILE OFFSET BYTES: write over; BYTES as printf has them
poke() { printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
u64() {
    local left=$1 i
    for i in 1 2 3 4 5 6 7 8; do
        printf "\\x$(printf %02x $((left & 255)))"
        left=$((left >> 8))
    done
}
u32() { u64 "$1" | head -c 4; }
header_bytes() { od -An -tu8 -N8 "$1" | tr -d ' '; }
# header FILE SED: edit the JSON header of a safetensors file; its length follows
header() {
    local bytes
    bytes=$(header_bytes "$1")
    tail -c +9 "$1" | head -c "$bytes" | sed "$2" >"$1.header"
    { u64 "$(stat -c %s "$1.header")"; cat "$1.header"; tail -c "+$((9 + bytes))" "$1"; } >"$1.new"
    mv "$1.new" "$1"
    rm "$1.header"
}
# poke_tensors FILE OFFSET BYTES: OFFSET counts from the end of the header
poke_tensors() { poke "$1" $((8 + $(header_bytes "$1") + $2)) "$3"; }
# an edit that edits nothing would make a sound job
edit() {
    cp "$1" "$1.before"
    sed -i "$2" "$1"
    if cmp -s "$1" "$1.before"; then echo "# no change: $2"; fi
    rm "$1.before"
}

# --- the sound job ---

mkdir "$dir/sound" && cd "$dir/sound" || exit 99
small_inputs "$fixtures"
cp "$2/tests/cli/bad/sound.toml" job.toml
mkdir out
echo kept >out/kept.txt

# A run leaves two: $c is the newest.
two_checkpoints() {
    if ! "$zerod" --job job.toml --set checkpoint.save_steps=1 --set checkpoint.export=none >"$dir/log" 2>&1; then
        cat "$dir/log"
        echo 'Bail out! the sound job does not run'
        exit 1
    fi
    c=out/checkpoint-000002
    shard=shard-00001-of-00001.safetensors
}

# --- rows ---

# The lock and the logs are of the run itself.
state() { find out -path out/logs -prune -o -type f ! -name .zerod.lock -exec cksum {} + | sort -k 3; }

row() {
    local name=$1 want=$2 said=$3 setup=$4 code why='' part parts
    shift 4
    [ $# -gt 0 ] || set -- --job job.toml
    if [ -n "${ROW:-}" ] && [ "$ROW" != "$name" ]; then return; fi
    rm -rf "$dir/work"
    cp -r "$dir/sound" "$dir/work" && cd "$dir/work" || exit 99
    # a lock and a limit that the set-up takes end with it
    (eval "$setup" >"$dir/setup" 2>&1 || echo 'the set-up failed' >>"$dir/setup"
        state >"$dir/before"
        timeout -k 1 100 "$zerod" "$@" >"$dir/stdout" 2>"$dir/stderr")
    code=$?
    [ ! -s "$dir/setup" ] || why='; the set-up says something'
    state >"$dir/after"
    [ $code = "$want" ] || why="$why; exit $code, not $want"
    [ "$(grep -c '^error' "$dir/stderr")" = 1 ] || why="$why; not one line begins with error"
    [ "$(grep -cE '^error\[E[0-9]{4}\]: .' "$dir/stderr")" = 1 ] || why="$why; no error of the right form"
    [ ! -s "$dir/stdout" ] || why="$why; stdout is not empty"
    if grep -q "$(printf '\033')" "$dir/stderr"; then why="$why; escape codes"; fi
    IFS='|' read -ra parts <<<"$said"
    for part in "${parts[@]}"; do
        grep -qF -e "$part" "$dir/stderr" || why="$why; does not say: $part"
    done
    cmp -s "$dir/before" "$dir/after" || why="$why; out has changed"
    tell $((${#why} > 0)) "$name"
    if [ -n "$why" ]; then
        echo "# ${why#; }"
        sed 's/^/# /' "$dir/setup" "$dir/stderr"
        diff "$dir/before" "$dir/after" | sed 's/^/# /'
    fi
    if [ -n "${SHOW:-}" ]; then sed 's/^/# /' "$dir/stderr"; fi
}
# table FILE: rows as blocks of lines: "== CODE NAME" (or "==FUNCTION CODE NAME", for what runs in place of row), SAID, then
# SETUP, and "zerod ARGUMENT..." where it is not a start of the job. Lines that begin with # are comments.
table() {
    local lines line function=: code name said setup words
    mapfile -t lines <"$1"
    for line in "${lines[@]}" '== end'; do
        case $line in
        '' | '#'*) ;;
        ==*)
            eval "$function \"\$name\" \"\$code\" \"\$said\" \"\$setup\" $words"
            read -r code name <<<"${line#* }"
            function=${line%% *} function=${function#==} function=${function:-row}
            said='' setup='' words=''
            ;;
        'zerod '*) words=${line#zerod } ;;
        *) if [ -z "$said" ]; then said=$line; else setup+=$line$'\n'; fi ;;
        esac
    done
}
