#!/usr/bin/env bash
# Where the CUDA toolkit is: its compiler, headers and static runtime. deploy/cuda/meson.build asks; so may a person.
#   deploy/cuda/find.sh    one name=value a line: nvcc, include, library, version; nccl, cudnn and cudnn_frontend where headers are
# The first of these that has all three and is CUDA 13 or later: $CUDA_HOME, $CUDA_PATH, the nvcc on PATH, /usr/local/cuda,
# the newest /usr/local/cuda-*, and the folders of PyPI's wheels (nvidia-cuda-nvcc, -runtime, -crt, -cccl: nvidia/cu13) of
# $VIRTUAL_ENV and of python3. Ends with 69 where there is none, and says on stderr where it has looked and what was missing.
# $CUDA_FIND_ROOT: a folder in place of / for what is below /usr; the tests' own.
set -uo pipefail
tree=$(readlink -f "$(dirname "$0")/../..")
usr=${CUDA_FIND_ROOT:-}/usr
oldest=13

wheel_folders() {
    local folder
    for folder in ${VIRTUAL_ENV:+"$VIRTUAL_ENV"/lib/python3*/site-packages} \
            $(python3 -I -c 'import site, sysconfig
print(sysconfig.get_path("purelib"), site.getusersitepackages())' 2>/dev/null); do
        if [[ -d $folder/nvidia ]]; then printf '%s\n' "$folder/nvidia"; fi
    done
}
mapfile -t wheels < <(wheel_folders)

toolkits() {
    local nvcc wheel
    printf '%s\n' "${CUDA_HOME:-}" "${CUDA_PATH:-}"
    if nvcc=$(command -v nvcc); then dirname "$(dirname "$(readlink -f "$nvcc")")"; fi
    printf '%s\n' "$usr/local/cuda"
    printf '%s\n' "$usr"/local/cuda-* | sort -rV
    for wheel in "${wheels[@]}"; do printf '%s\n' "$wheel"/cu[0-9]*; done
}

# The folder of the first file that exists.
folder_of() {
    local file
    for file in "$@"; do
        if [[ -e $file ]]; then dirname "$file"; return; fi
    done
    return 1
}

# toolkit ROOT: sets nvcc, include, library and version; else says what is missing
toolkit() {
    local targets=("$1"/targets/*-linux)
    nvcc=$1/bin/nvcc
    if [[ ! -x $nvcc ]]; then echo "no bin/nvcc"; return 1; fi
    version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')
    if [[ -z $version ]]; then echo "bin/nvcc does not run"; return 1; fi
    if [[ ${version%%.*} -lt $oldest ]]; then echo "CUDA $version is older than $oldest"; return 1; fi
    if ! include=$(folder_of "$1"/include/cuda_runtime_api.h "${targets[0]}/include/cuda_runtime_api.h"); then
        echo "no cuda_runtime_api.h"
        return 1
    fi
    if ! library=$(folder_of "$1"/lib64/libcudart_static.a "$1"/lib/libcudart_static.a "${targets[0]}/lib/libcudart_static.a"); then
        echo "no libcudart_static.a"
        return 1
    fi
}

# What is opened when it is used: headers are all that a build needs.
print_headers() {
    local wheel folder frontend
    local -a nccl=() cudnn=() frontends=()
    for wheel in "${wheels[@]}"; do
        nccl+=("$wheel/nccl/include/nccl.h")
        cudnn+=("$wheel/cudnn/include/cudnn.h")
        frontends+=("${wheel%/nvidia}/include/cudnn_frontend.h")
    done
    if folder=$(folder_of ${NCCL_HOME:+"$NCCL_HOME/include/nccl.h"} "$include/nccl.h" "$usr/include/nccl.h" \
            "$usr/local/include/nccl.h" "${nccl[@]}"); then
        printf 'nccl=%s\n' "$folder"
    fi
    # cudnn-frontend: cudnn_frontend.sh puts it into .cache/, pip into site-packages/include.
    if folder=$(folder_of ${CUDNN_HOME:+"$CUDNN_HOME/include/cudnn.h"} "$include/cudnn.h" "$usr/include/cudnn.h" \
            "$usr"/include/*-linux-gnu/cudnn.h "$usr/local/include/cudnn.h" "${cudnn[@]}") &&
        frontend=$(folder_of ${CUDNN_FRONTEND_HOME:+"$CUDNN_FRONTEND_HOME/include/cudnn_frontend.h"} \
            "$tree/.cache/cudnn-frontend/include/cudnn_frontend.h" "$include/cudnn_frontend.h" \
            "$usr/include/cudnn_frontend.h" "$usr/local/include/cudnn_frontend.h" "${frontends[@]}"); then
        printf 'cudnn=%s\ncudnn_frontend=%s\n' "$folder" "$frontend"
    fi
}

missing=$(mktemp) || exit
trap 'rm -f "$missing"' EXIT
looked=()
while IFS= read -r root; do
    [[ -n $root && -d $root ]] || continue
    if toolkit "$root" >"$missing"; then
        printf 'nvcc=%s\ninclude=%s\nlibrary=%s\nversion=%s\n' "$nvcc" "$include" "$library" "$version"
        print_headers
        exit 0
    fi
    looked+=("$root: $(<"$missing")")
done < <(toolkits)
echo "no CUDA toolkit (bin/nvcc of CUDA $oldest or later, include/cuda_runtime_api.h, libcudart_static.a) in:" \
    "\$CUDA_HOME, \$CUDA_PATH, PATH, $usr/local/cuda*, PyPI's nvidia/cu*" >&2
for folder in "${looked[@]}"; do echo "  $folder" >&2; done
exit 69
