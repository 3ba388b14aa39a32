# tap.sh - what the scripts that test share: results as TAP, and a folder of their own. Sourced by sh and bash.
#   tell CODE NAME          a test; good when CODE is 0
#   ok NAME COMMAND...      a test; good when the command succeeds. Else what it said, and the file `err`, is told
#   skip NAME WHY; skip_all WHY
#   again WHAT: WHY         something is tried again; deploy/test.sh counts these lines
#   tests_end               the last line; the exit code is 1 when a test failed
tests=0 failures=0

tell() {
    tests=$((tests + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $tests - $2"
    else
        failures=$((failures + 1))
        echo "not ok $tests - $2"
    fi
}
ok() {
    local name=$1 code=0
    shift
    "$@" >log 2>&1 || code=$?
    tell $code "$name"
    if [ $code -ne 0 ]; then sed 's/^/# /' log err 2>/dev/null; fi
}
skip() {
    tests=$((tests + 1))
    echo "ok $tests - $1 # SKIP $2"
}
skip_all() {
    echo "1..0 # SKIP $*"
    exit 0
}
again() { echo "# again: $*"; }
tests_end() {
    echo "1..$tests"
    exit $((failures > 0))
}

# scratch_folder: its name in `work`; jobs of equal names that run beside each other do not meet. At the end it is removed, and
# whatever was started with it in its environment is killed: not by number, for one that has ended may be another's by now.
scratch_folder() {
    # no dot: mandoc takes what follows it for a section; in /tmp: a socket's path has 107 bytes, wherever TMPDIR is
    work=$(mktemp -d /tmp/zerod-XXXXXX) || exit 99
    export XDG_RUNTIME_DIR="$work"
    trap 'kill_started; rm -rf "$work"' EXIT
}
kill_started() { kill -KILL $(grep -lzs "^XDG_RUNTIME_DIR=$work" /proc/[0-9]*/environ | tr -dc '0-9\n') 2>/dev/null; }
