# lib.sh - what the scripts of this folder share: the real program under the real mpirun, told as TAP.
#   source lib.sh ZEROD SOURCE_ROOT
# Every script runs in a folder of its own below /tmp, with `zerod` on the PATH, job.toml and a link to tests/ in it, and
# leaves no process behind. Runs are named: NAME.err and NAME.out hold what they said, NAME/ is their output_dir.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # root, as in a container
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # Open MPI 4 and 5
export LC_ALL=C LSAN_OPTIONS=detect_leaks=0
zerod=$1 source_root=$2
source "$source_root/tests/support/tap.sh"
PATH=$(dirname "$zerod"):$PATH
scratch_folder
folder=$work
cd "$folder" || exit 70
ln -s "$source_root/tests" tests

# The job of a fixture with the data's cache of its own; $1: output_dir. More sections may follow on stdin.
write_job() {
    sed -e "s|^\[job\]|[job]\noutput_dir = \"$1\"|" -e 's|^\[data\]|[data]\ncache_dir = "cache"|' \
        "tests/fixtures/${2:-llama_odd}/job.toml"
}
write_job out >job.toml

note() { echo "# $*"; }
# check WHAT COMMAND...: one test; what the command prints is told when it fails.
check() {
    local what=$1 said bad=0 # $code is the run's
    shift
    said=$("$@" 2>&1) || bad=1
    tell $bad "$what"
    [[ $bad -ne 0 ]] || return 0
    sed 's/^/#   /' <<<"$said" | tail -n 12
    [[ -z ${name:-} ]] || tail -n 12 "$name.err" | sed 's/^/#   | /'
}

# run NAME RANKS ARGUMENT...: to the end, in bounded time; $code is mpirun's. RANKS 0: without mpirun.
run() {
    local ranks=$2
    name=$1
    shift 2
    local launch=(mpirun -np "$ranks")
    [[ $ranks -gt 0 ]] || launch=()
    code=0
    timeout -k 5 "${limit:-200}" "${launch[@]}" zerod --job job.toml --set job.output_dir="$name" "$@" \
        >"$name.out" 2>"$name.err" || code=$?
}
# start NAME RANKS ARGUMENT...: in the background; $pid is mpirun's.
start() {
    local ranks=$2
    name=$1
    shift 2
    local launch=(mpirun -np "$ranks")
    [[ $ranks -gt 0 ]] || launch=()
    "${launch[@]}" zerod --job job.toml --set job.output_dir="$name" "$@" >"$name.out" 2>"$name.err" &
    pid=$!
}
# Wait for what was started; one that never ends is killed and fails by its code.
finish_started() {
    local tries=0
    while lives "$pid" && [[ $tries -lt 2000 ]]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    [[ $tries -lt 2000 ]] || kill -KILL $(children "$pid") "$pid"
    code=0
    wait "$pid" 2>/dev/null || code=$?
}
# together COMMAND...: a run; where a machine is too busy for a start within comm.timeout again, with more of it, $tries^2 times.
together() {
    local each given
    for tries in 1 2 3 4; do
        given=()
        for each; do
            [[ $each != comm.timeout=* ]] || each=comm.timeout=$((${each//[!0-9]/} * tries * tries))s
            given+=("$each")
        done
        "${given[@]}"
        grep -q '^error.E0505.' "$name.err" || return 0
        again "$name: $(grep -m 1 '^error' "$name.err")"
    done
}
state() { sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null; }
# One look: a process that has ended may be taken away between two.
lives() { [[ $(state "$1") == [!ZX] ]]; }
children() { cat /proc/"$1"/task/*/children 2>/dev/null; }

# --- what a run left -------------------------------------------------------------------------------------------------
# The values of a key of metrics.jsonl, one a line; the digits are enough to come back exactly, so equal text is equal bits.
column() { sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" "$1/metrics.jsonl" 2>/dev/null; }
rows() { column "$1" loss | wc -l; }
# wait_rows NAME COUNT: until that many steps are done.
wait_rows() {
    local tries=0
    while [[ $(rows "$1") -lt $2 && $tries -lt 3000 ]] && lives "$pid"; do
        sleep 0.05
        tries=$((tries + 1))
    done
}
# wait_commit RUN: until a checkpoint is committed (its save may be behind the steps), or the run is over.
wait_commit() {
    local tries=0
    while [[ -z $(newest "$1") && $tries -lt 3000 ]] && lives "$pid"; do
        sleep 0.05
        tries=$((tries + 1))
    done
}
checkpoints() { (cd "$1" 2>/dev/null && ls -d checkpoint-* 2>/dev/null); }
newest() { checkpoints "$1" | tail -n 1; }

# --- conditions ------------------------------------------------------------------------------------------------------
code_is() { [[ $code -eq $1 ]] || { echo "exit code $code, not $1"; return 1; }; }
# One cause is told once, with this code (or any), and nothing else begins with error.
one_error() {
    local count
    count=$(grep -c '^error' "$name.err")
    [[ $count -eq 1 ]] || { echo "$count lines begin with error"; return 1; }
    [[ -z ${1:-} ]] || grep -q "^error\[$1\]" "$name.err" || { grep '^error' "$name.err"; return 1; }
}
# fails_with EXIT [ERROR]
fails_with() { code_is "$1" && one_error "${2:-}"; }
no_error() { ! grep '^error' "$name.err"; }
says() { grep -q -e "$1" "$name.err" || { echo "it does not say: $1"; return 1; }; }
same_curve() {
    local key
    [[ $(rows "$1") -gt 0 ]] || { echo "$1 has no rows"; return 1; }
    for key in step loss grad_norm learning_rate tokens; do
        diff <(column "$1" "$key") <(column "$2" "$key") >/dev/null || { echo "$key differs"; return 1; }
    done
}
same_model() { cmp "$1/hf/model.safetensors" "$2/hf/model.safetensors"; }
same_run() { same_curve "$1" "$2" && same_model "$1" "$2"; }
# near A B: every loss within 1e-5, relative.
near() {
    paste <(column "$1" loss) <(column "$2" loss) | awk '
        NF != 2 { print "a row is missing"; bad = 1; exit 1 }
        { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > most) most = d }
        END { if (!bad) { printf "largest difference %.2g of %d rows\n", most, NR; exit !(NR > 0 && most <= 1e-5) } exit 1 }'
}
verifies() { zerod ckpt verify "$1"; }
all_verify() {
    local each some=1
    for each in $(checkpoints "$1"); do
        zerod ckpt verify "$1/$each" || return 1
        some=0
    done
    return $some
}
no_leftovers() { ! ls -d "$1"/.tmp-* "$1"/.trash-* 2>/dev/null; }
