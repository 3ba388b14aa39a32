#!/usr/bin/env bash
# Models that do not fit: GPT-2 XL's shape trains a step in 6 GiB of device memory and Llama 3.2 1B's in 3 GiB, their masters and 8-bit
# states on the host; what the process takes is what was planned.
#   fit.sh ZEROD       prints TAP; run from the repository's root; takes 20 GB of memory and some minutes
set -uo pipefail
zerod=$1
. tests/support/tap.sh
scratch_folder

# Runs the program and prints the largest resident set in bytes; the program's exit code is ours.
resident() { # ARGUMENT...
    python3 -I - "$@" <<'PYTHON'
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
sys.exit(code)
PYTHON
}

# planned FILE: bytes of all memories but the disk
planned() {
    python3 -I -c 'import json, sys
rank = json.load(open(sys.argv[1]))["ranks"][0]
print(sum(a["planned_bytes"] for a in rank["arenas"] if a["name"] != "disk"))' "$1"
}

fit() { # NAME HOST_BYTES_PER_PARAMETER
    local job=tests/program/fit_$1.toml code=0 rss plan
    "$zerod" plan --job "$job" --world 1 | sed 's/^/# /'
    "$zerod" plan --job "$job" --world 1 | grep "^host bytes per trained parameter $2$" >/dev/null
    tell $? "$1: $2 bytes on the host for each parameter"
    rss=$(resident "$zerod" --job "$job" --set "job.output_dir=$work/$1" --set "data.cache_dir=$work/cache" 2>"$work/log") || code=$?
    sed 's/^/# /' "$work/log"
    tell "$code" "$1: a step"
    [[ $code -eq 0 ]] || return
    plan=$(planned "$work/$1/plan.json")
    echo "# planned $plan bytes, resident $rss bytes at most"
    ((rss < plan + plan / 50 + 150000000))
    tell $? "$1: resident within 2 % and 150 MB of what was planned"
}

need=21000000 # kB
if [[ $(awk '/MemAvailable/ { print $2 }' /proc/meminfo) -lt $need ]]; then
    echo "1..0 # SKIP less than 21 GB of memory are free"
    exit 0
fi
fit gpt2_xl 8.35
fit llama_1b 9.30
tests_end
