#!/usr/bin/env bash
# A .cpp that compiles a .cu for the CPU: tests/cuda/emulate.h in front, then the source as it is. For builds with
# -Dgpu_stand_in=true. A __shared__ array is its kernel's own: the stand-in fills those with NaN that it finds by the kernel's
# name, so one of a function that kernels call is refused, here and in headers that the source names.
#   deploy/cuda/stand_in.sh FILE.cu OUT.cpp
set -euo pipefail
root=$(readlink -f "$(dirname "$0")/../..")
source=$(readlink -f "$1")
mapfile -t headers < <(sed -n "s|^#include \"\(.*\.cuh\)\"|$root/\1|p" "$source")
awk '/__global__/ { of_kernel = 1 }
    /__device__/ || FNR == 1 { of_kernel = 0 }
    /__shared__/ && !/extern/ && !of_kernel {
        print FILENAME ":" FNR ": error: a __shared__ array of a function that is no kernel" >"/dev/stderr"
        bad = 1
    }
    END { exit bad }' "$source" "${headers[@]}"
printf '#include "tests/cuda/emulate.h"\n#include "%s"\n' "${source#"$root"/}" >"$2"
