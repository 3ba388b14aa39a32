#!/usr/bin/env bash
# Configure a build folder once and build in it.
#   deploy/build.sh FOLDER [--target T]... [meson option]...
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
folder=$1
shift
targets=()
while [[ ${1:-} == --target ]]; do targets+=("$2"); shift 2; done
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# meson clears out a folder that an interrupted set-up left behind only when told to.
if [[ ! -f $folder/build.ninja ]]; then
    rm -rf "$folder"
    meson setup "$folder" "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 70; }
fi
ninja -C "$folder" "${targets[@]}" >"$log" 2>&1 || { tail -n 60 "$log" >&2; exit 70; }
if grep -q 'warning:' "$log"; then grep -A 4 'warning:' "$log" >&2; fi
