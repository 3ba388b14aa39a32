#!/usr/bin/env bash
# A row of the table of GPU figures: ours and the peer's in turn, in one run.
#   bench/gpu.sh FOLDER ROW [OPTION]...     FOLDER: made by deploy/bundle.sh, or a build folder; without ROW: the rows
# The peers need Python with torch and transformers (bitsandbytes, torchao where the row says so). Results are appended to
# FOLDER/gpu-bench.jsonl and printed; a row takes less than eight minutes (--rounds, --steps change that).
set -euo pipefail
here=$(dirname "$(dirname "$(readlink -f "$0")")")
folder=$(readlink -f "${1:?the folder that deploy/bundle.sh made, or a build folder}")
shift
if [[ -e $folder/payload.tar.gz ]]; then
    # shellcheck source=deploy/bundle-env.sh
    source "$here/deploy/bundle-env.sh" "$folder"
    programs=$BUNDLE/programs
else
    programs=$folder/bench
    PATH=$folder/daemon:$PATH
fi
exec python3 "$here/bench/gpu_rows.py" --programs "$programs" --results "$folder/gpu-bench.jsonl" "$@"
