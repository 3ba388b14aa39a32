#!/usr/bin/env bash
# A row of the table of GPU figures: ours and the peer's in turn, in one run.
#   bench/gpu.sh FOLDER ROW [OPTION]...     FOLDER: made by deploy/bundle.sh, or a build folder; without ROW: the rows
# The peers need Python with torch and transformers ($ZEROD_PEER_PYTHON, else python3); bitsandbytes and torchao are used where
# they are, and reported where they are not. Results are appended to FOLDER/gpu-bench.jsonl and printed; a row takes less than
# eight minutes. Options: --limit SECONDS, --rounds N, --steps N, --results FILE, --llmc FOLDER, --cudnn-frontend FOLDER, and --tiny:
# tries it all over models of nothing, also on a build with stand-ins.
# Ends with 1 when ours gave no figure or, of the row fit, when a row does not fit; 64: a word it does not know; 66: no such folder, or
# its payload is cut; 69: no GPU that zerod can use, and no result is written; 77: what was unpacked is not this user's alone.
set -euo pipefail
here=$(dirname "$(dirname "$(readlink -f "$0")")")
# shellcheck source=deploy/gpu-folder.sh
source "$here/deploy/gpu-folder.sh"
tell_usage "$@"
gpu_folder "$1"
shift
# a word that is not understood ends it here, before anything is unpacked
python3 "$here/bench/gpu_rows.py" --programs . --results . --check "$@" || exit
if [[ -e $folder/payload.tar.xz ]]; then
    # shellcheck source=deploy/bundle-env.sh
    source "$here/deploy/bundle-env.sh" "$folder" || exit
    programs=$BUNDLE/programs commit=$(cat "$BUNDLE/commit")
else
    programs=$folder/bench commit=$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)
    PATH=$folder/daemon:$PATH
    # a build with the stand-ins of tests/cuda, to try this script
    if [[ -d $folder/tests/cuda/cublaslt ]]; then
        export LD_LIBRARY_PATH=$folder/tests/cuda/cublaslt:$folder/tests/cuda/nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    fi
fi
# Python and the peers run with the machine's own libraries, zerod with those of the bundle
export ZEROD_LIBRARIES=${LD_LIBRARY_PATH:-}
if [[ -n ${ZEROD_OUTER_LIBRARY_PATH+set} ]]; then export LD_LIBRARY_PATH=$ZEROD_OUTER_LIBRARY_PATH; fi
exec python3 "$here/bench/gpu_rows.py" --programs "$programs" --results "$folder/gpu-bench.jsonl" --commit "$commit" "$@"
