#!/usr/bin/env bash
# Configure a build folder once and build in it.
#   deploy/build.sh FOLDER [--target T]... [--suite S]... [meson option]...
# Without targets and suites everything is built; of a suite, what its tests need.
# Before each stage a line says what comes and how long it takes; FOLDER/setup.log and FOLDER/build.log have all that meson
# and ninja say. On a terminal the step that ninja is at is shown.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
folder=$1
shift
targets=()
suites=()
while [[ ${1:-} == --target || ${1:-} == --suite ]]; do
    if [[ $1 == --target ]]; then targets+=("$2"); else suites+=("$2"); fi
    shift 2
done
say() { printf '   %s\n' "$*" >&2; }

# What ccache has from one clone is of use in another.
if command -v ccache >/dev/null; then
    [[ -n $(ccache --get-config base_dir) ]] || export CCACHE_BASEDIR=$PWD
    [[ -n ${CCACHE_HASHDIR+set} ]] || export CCACHE_NOHASHDIR=1
fi

# meson clears out a folder that an interrupted set-up left behind only when told to.
if [[ ! -f $folder/build.ninja ]]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    say "meson setup $folder: looks for compilers and libraries, half a minute at most; log: $folder/setup.log"
    meson setup "$folder" "$@" >"$folder/setup.log" 2>&1 || { cat "$folder/setup.log" >&2; exit 70; }
fi

if [[ ${#suites[@]} -gt 0 ]]; then
    needed=$(python3 deploy/suite_targets.py "$folder" "${suites[@]}")
    [[ -z $needed ]] || mapfile -t -O "${#targets[@]}" targets <<<"$needed"
fi

# How many steps there are, and about how long they take: seconds of a core as measured without ccache, with room for a slower
# machine. A kernel takes nvcc as long as 26 other files.
log=$folder/build.log
planned=$(ninja -C "$folder" -n "${targets[@]}" 2>/dev/null || true)
steps=$(sed -n 's|^\[[0-9]*/\([0-9]*\)\].*|\1|p' <<<"$planned" | tail -n 1)
if [[ -z $steps ]]; then
    say "ninja -C $folder: everything is built"
else
    kernels=$(grep -c 'Generating .*_cuda\.cu\.o' <<<"$planned" || true)
    cores=$(env -u OMP_NUM_THREADS nproc)
    minutes=$((((steps + 25 * kernels) / 2 / cores + 59) / 60))
    [[ $minutes -gt 0 ]] || minutes=1
    say "ninja -C $folder: $steps steps, about $minutes minute$([[ $minutes -eq 1 ]] || echo s) on $cores core$(
        [[ $cores -eq 1 ]] || echo s); log: $log"
fi

# ninja's own lines, each over the one before.
follow() {
    local line width
    width=$(tput cols || echo 80)
    while IFS= read -r line; do
        [[ $line != \[* ]] || printf '\r\033[K   %.*s' $((width - 4)) "$line" >&2
    done
    printf '\r\033[K' >&2
}
build() { ninja -C "$folder" "${targets[@]}" 2>&1; }
code=0
if [[ -t 2 && ${TERM:-dumb} != dumb ]]; then
    build | tee "$log" | follow || code=$?
else
    build >"$log" || code=$?
fi
if [[ $code -ne 0 ]]; then tail -n 60 "$log" >&2; exit 70; fi
warning='warning( #[0-9]+(-D)?)?:' # nvcc's have a number
if grep -qE "$warning" "$log"; then grep -E -A 4 "$warning" "$log" >&2; fi
