#!/usr/bin/env bash
# Where the CUDA toolkit is: its compiler, headers and static runtime. deploy/cuda/meson.build asks; so may a person.
#   deploy/cuda/find.sh    one name=value a line: nvcc, include, library, version; nccl, cudnn and cudnn_frontend where headers are
# The first of these that has all three: $CUDA_HOME, $CUDA_PATH, the nvcc on PATH, /usr/local/cuda, the newest
# /usr/local/cuda-*, and the folders of PyPI's wheels (nvidia-cuda-nvcc, -runtime, -crt, -cccl: nvidia/cu13) of
# $VIRTUAL_ENV and of python3. Ends with 69 where there is none, and says on stderr where it has looked.
set -uo pipefail

wheel_folders() {
    local folder
    for folder in ${VIRTUAL_ENV:+"$VIRTUAL_ENV"/lib/python3*/site-packages} \
            $(python3 -c 'import site, sysconfig
print(sysconfig.get_path("purelib"), site.getusersitepackages())' 2>/dev/null); do
        if [[ -d $folder/nvidia ]]; then printf '%s\n' "$folder/nvidia"; fi
    done
}
mapfile -t wheels < <(wheel_folders)

toolkits() {
    local nvcc wheel
    printf '%s\n' "${CUDA_HOME:-}" "${CUDA_PATH:-}"
    if nvcc=$(command -v nvcc); then dirname "$(dirname "$(readlink -f "$nvcc")")"; fi
    printf '%s\n' /usr/local/cuda
    printf '%s\n' /usr/local/cuda-* | sort -rV
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

looked=()
while IFS= read -r root; do
    [[ -n $root && -d $root ]] || continue
    looked+=("$root")
    [[ -x $root/bin/nvcc ]] || continue
    include=$(folder_of "$root"/include/cuda_runtime_api.h "$root"/targets/*-linux/include/cuda_runtime_api.h) || continue
    library=$(folder_of "$root"/lib64/libcudart_static.a "$root"/lib/libcudart_static.a \
        "$root"/targets/*-linux/lib/libcudart_static.a) || continue
    version=$("$root/bin/nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p') || continue
    printf 'nvcc=%s\ninclude=%s\nlibrary=%s\nversion=%s\n' "$root/bin/nvcc" "$include" "$library" "$version"
    wheel_nccl=()
    for wheel in "${wheels[@]}"; do wheel_nccl+=("$wheel/nccl/include/nccl.h"); done
    if nccl=$(folder_of ${NCCL_HOME:+"$NCCL_HOME/include/nccl.h"} "$include/nccl.h" /usr/include/nccl.h \
            /usr/local/include/nccl.h "${wheel_nccl[@]}"); then
        printf 'nccl=%s\n' "$nccl"
    fi
    # cudnn-frontend (headers alone: PyPI's nvidia-cudnn-frontend puts them into site-packages/include) and cuDNN's own
    wheel_cudnn=() wheel_frontend=()
    for wheel in "${wheels[@]}"; do
        wheel_cudnn+=("$wheel/cudnn/include/cudnn.h")
        wheel_frontend+=("${wheel%/nvidia}/include/cudnn_frontend.h")
    done
    if cudnn=$(folder_of ${CUDNN_HOME:+"$CUDNN_HOME/include/cudnn.h"} "$include/cudnn.h" /usr/include/cudnn.h \
            /usr/include/*-linux-gnu/cudnn.h "${wheel_cudnn[@]}") &&
        frontend=$(folder_of ${CUDNN_FRONTEND_HOME:+"$CUDNN_FRONTEND_HOME/include/cudnn_frontend.h"} \
            "$include/cudnn_frontend.h" /usr/include/cudnn_frontend.h /usr/local/include/cudnn_frontend.h \
            "${wheel_frontend[@]}"); then
        printf 'cudnn=%s\ncudnn_frontend=%s\n' "$cudnn" "$frontend"
    fi
    exit 0
done < <(toolkits)
echo "no CUDA toolkit (bin/nvcc, include/cuda_runtime_api.h, libcudart_static.a) in:" \
    "\$CUDA_HOME, \$CUDA_PATH, PATH, /usr/local/cuda*, PyPI's nvidia/cu*${looked[*]:+ (looked into ${looked[*]})}" >&2
exit 69
