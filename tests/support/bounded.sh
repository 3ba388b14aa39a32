# bounded.sh - commands that end in time, and with the script that began them. Sourced by bash.
#   bounded SECONDS COMMAND...   its exit code; 124: it took longer, 137: it did not heed that for ten seconds
# `timeout` makes a group of its own for what it runs. Whoever ends the script ends not that group, and what lives on is in the
# way of what comes next: the script passes TERM, INT and HUP on, and waits.
bounded_pid=''
bounded() {
    local seconds=$1 code=0
    shift
    timeout -k 10 "$seconds" "$@" &
    bounded_pid=$!
    wait "$bounded_pid" || code=$?
    bounded_pid=''
    return $code
}
bounded_end() {
    if [[ -n $bounded_pid ]]; then
        kill "$bounded_pid" 2>/dev/null
        wait "$bounded_pid"
        bounded_pid=''
    fi
}
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
trap bounded_end EXIT # a script with an end of its own calls bounded_end there
