#!/usr/bin/env bash
# The headers of cudnn-frontend (header-only C++) from their wheel on PyPI into .cache/cudnn-frontend of this source tree,
# where deploy/cuda/find.sh looks for them. The version and its hash: cudnn-frontend.txt. cuDNN's own headers are not among them.
#   deploy/cuda/cudnn_frontend.sh
# Says in one line what is there and where, or what failed. Ends with 0, without the network when they are there already;
# with 69 where they cannot be had, with 73 where they cannot be written.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
pinned=$here/cudnn-frontend.txt
name=$(sed -n 's/^nvidia-\(.*\)==\([^ ]*\).*/\1 \2/p' "$pinned")
cache=$(readlink -m "$here/../../.cache")
to=$cache/cudnn-frontend

done_with() { echo "== $name: headers in $to/include ($1)" >&2; exit 0; }
fail() { # STATUS WHY
    echo "cudnn_frontend.sh: $name: $2; a build goes without attention by cuDNN" >&2
    exit "$1"
}

if cmp -s "$pinned" "$to/version"; then done_with "there already"; fi
if ! python3 -I -m pip --version >/dev/null 2>&1; then fail 69 "python3 has no pip"; fi

mkdir -p "$cache" 2>/dev/null && work=$(mktemp -d "$cache/fetch.XXXXXX" 2>/dev/null) || fail 73 "$cache cannot be written"
trap 'rm -rf "$work"' EXIT
if ! python3 -I -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
        --implementation cp --python-version 3.11 --abi cp311 --platform manylinux_2_28_x86_64 \
        --dest "$work" --requirement "$pinned" >"$work/log" 2>&1; then
    # pip's first line has the cause: the connection, the hash, the version
    fail 69 "its wheel could not be had: $(head -n 1 "$work/log")"
fi
# The headers and their licences; the rest of it is for Python. They come into their place whole.
if ! python3 -I - "$work"/*.whl "$work/new" 2>"$work/log" <<'PYTHON'
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.startswith("include/") or "/licenses/" in name])
PYTHON
then
    fail 73 "its wheel could not be unpacked: $(tail -n 1 "$work/log")"
fi
cp "$pinned" "$work/new/version" && rm -rf "$to" && mv "$work/new" "$to" || fail 73 "$to cannot be written"
done_with "fetched from PyPI"
