#!/usr/bin/env bash
# A .cpp that compiles a .cu for the CPU: tests/cuda/emulate.h in front, then the source as it is. For builds with
# -Dgpu_stand_in=true.
#   deploy/cuda/stand_in.sh FILE.cu OUT.cpp
set -euo pipefail
root=$(readlink -f "$(dirname "$0")/../..")
source=$(readlink -f "$1")
printf '#include "tests/cuda/emulate.h"\n#include "%s"\n' "${source#"$root"/}" >"$2"
