#!/usr/bin/env bash
# The headers of cudnn-frontend (header-only C++) from their wheel on PyPI into .cache/cudnn-frontend of this source tree,
# where deploy/cuda/find.sh looks for them. The version and its hash: cudnn-frontend.txt. cuDNN's own headers are not among them.
#   deploy/cuda/cudnn_frontend.sh
# Ends with 0 at once, and without the network, when they are there; with 69 and a line where they cannot be had.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
pinned=$here/cudnn-frontend.txt
to=$here/../../.cache/cudnn-frontend
if cmp -s "$pinned" "$to/version"; then exit 0; fi

work=$(mktemp -d) || exit
trap 'rm -rf "$work"' EXIT
if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
        --implementation cp --python-version 3.11 --abi cp311 --platform manylinux_2_28_x86_64 \
        --dest "$work" --requirement "$pinned" >"$work/log" 2>&1; then
    tail -n 3 "$work/log" >&2
    echo "cudnn_frontend.sh: the wheel of cudnn-frontend could not be had; a build goes without attention by cuDNN" >&2
    exit 69
fi
# The headers and their licences; the rest of it is for Python.
rm -rf "$to"
mkdir -p "$to" && python3 - "$work"/*.whl "$to" <<'PYTHON' && cp "$pinned" "$to/version"
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.startswith("include/") or "/licenses/" in name])
PYTHON
