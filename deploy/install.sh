#!/usr/bin/env bash
# Install the Debian packages of packages.txt that are missing.
#   deploy/install.sh [build] [run] [test] [ci] [demo] [net] [cudnn]        without a word: build run
# Asks nothing (sudo may want its password). Ends with 0 at once, and without the network, when nothing is missing.
# cudnn: the headers of cudnn-frontend too, from PyPI into .cache/ of the source tree (deploy/cuda/cudnn_frontend.sh).
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
[[ $# -gt 0 ]] || set -- build run

is_installed() {
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

is_known() { # to apt, in its present lists
    [[ -n $(apt-cache madison "$1" 2>/dev/null) ]]
}

# The package of "a|b" to have: one that is here, else the first that apt knows.
choose() {
    local -a names
    local name
    IFS='|' read -ra names <<<"$1"
    for name in "${names[@]}"; do
        if is_installed "$name"; then echo "$name"; return; fi
    done
    for name in "${names[@]}"; do
        if is_known "$name"; then echo "$name"; return; fi
    done
    echo "${names[0]}"
}

find_missing() {
    local group package use
    missing=()
    for use in "$@"; do
        while read -r group package; do
            [[ $group == "$use" ]] || continue
            package=$(choose "$package")
            is_installed "$package" || missing+=("$package")
        done <"$here/packages.txt"
    done
}

# What comes from elsewhere, once the packages are there.
finish() {
    if [[ " $* " == *" cudnn "* ]]; then exec "$here/cuda/cudnn_frontend.sh"; fi
    exit 0
}

if ! command -v apt-get >/dev/null; then
    echo "install.sh: this is no Debian system; install what $here/packages.txt names by other means" >&2
    exit 69
fi
find_missing "$@"
[[ ${#missing[@]} -gt 0 ]] || finish "$@"

as_root=()
if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
        echo "install.sh: missing: ${missing[*]}" >&2
        echo "install.sh: there is no sudo here; as root, run: apt-get install ${missing[*]}" >&2
        exit 69
    fi
    as_root=(sudo)
fi
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -qq -o Dpkg::Use-Pty=0)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Package lists may be absent (a container) or old: what cannot be had is tried again with new ones.
known=1
for package in "${missing[@]}"; do is_known "$package" || known=0; done
if [[ $known -eq 0 ]]; then
    echo "== updating the package lists" >&2
    "${apt[@]}" update >"$log" 2>&1 || { cat "$log" >&2; exit 69; }
    find_missing "$@"
fi
echo "== installing Debian packages${as_root[0]:+ with sudo}: ${missing[*]}" >&2
echo "   a download and a minute or two; apt's words meanwhile: tail -f $log" >&2
if ! "${apt[@]}" install --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
    "${apt[@]}" update >>"$log" 2>&1 || true
    if ! "${apt[@]}" install --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "install.sh: apt-get could not install: ${missing[*]}" >&2
        exit 69
    fi
fi
rm -f "$log" # exec leaves no trap
finish "$@"
