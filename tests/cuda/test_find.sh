#!/usr/bin/env bash
# Where deploy/cuda/find.sh looks for a toolkit, in which order, and what it says when there is none.
# usage: test_find.sh SOURCE
root=$1
. "$root/tests/support/tap.sh"
scratch_folder
cd "$work" || exit 99

# toolkit FOLDER [VERSION]: what is looked for, and no more
toolkit() {
    mkdir -p "$1"/{bin,include,lib64}
    printf '#!/bin/sh\necho "Cuda compilation tools, release %s, V%s.1"\n' "${2:-13.0}" "${2:-13.0}" >"$1/bin/nvcc"
    chmod +x "$1/bin/nvcc"
    touch "$1/include/cuda_runtime_api.h" "$1/lib64/libcudart_static.a"
}
# find [NAME=VALUE]...: find.sh where there is nothing but $work, sh, and what the test says
find() {
    ended=0
    env -i PATH="$work/bin" CUDA_FIND_ROOT="$work" "$@" bash "$root/deploy/cuda/find.sh" >out 2>err || ended=$?
}
took() { [[ $ended -eq 0 ]] && grep -qxF "nvcc=$1/bin/nvcc" out; }
says() { grep -qF -e "$1" err; }
has() { grep -qxF "$1=$2" out; }
has_no() { ! grep -q "^$1=" out; }

mkdir "$work/bin"
for tool in bash cat dirname env mktemp readlink rm sed sort; do ln -s "$(command -v $tool)" "$work/bin"; done
# what anybody may have put into the folder where it is started
printf 'open("%s", "w")\n' "$work/imported" | tee site.py sysconfig.py glob.py >nvidia.py
isolated() { rm -f "$work/imported"; "$@" >/dev/null 2>&1; [[ ! -e $work/imported ]]; }
ok 'find.sh imports nothing from the working folder' isolated bash "$root/deploy/cuda/find.sh"
ok '  nor does bundle-env.sh' isolated bash -c "$(sed -n '/^_nvidia=/,/^print/p' "$root/deploy/bundle-env.sh")"
rm -f ./*.py
packages=$work/venv/lib/python3.11/site-packages

find
ok 'without a toolkit it ends with 69' eval '[[ $ended -eq 69 && ! -s out ]]'
ok '  and says where it has looked' says "\$CUDA_HOME, \$CUDA_PATH, PATH, $work/usr/local/cuda*, PyPI's nvidia/cu*"

toolkit "$packages/nvidia/cu13"
find VIRTUAL_ENV="$work/venv"
ok 'wheels of a virtual environment' took "$packages/nvidia/cu13"
ok '  without NCCL' has_no nccl
mkdir -p "$packages/nvidia/nccl/include" "$packages/nvidia/cudnn/include" "$packages/include"
touch "$packages/nvidia/nccl/include/nccl.h" "$packages/nvidia/cudnn/include/cudnn.h" "$packages/include/cudnn_frontend.h"
find VIRTUAL_ENV="$work/venv"
ok '  and with its wheel' has nccl "$packages/nvidia/nccl/include"
ok '  cuDNN too' has cudnn "$packages/nvidia/cudnn/include"
mkdir -p "$work/frontend/include" && touch "$work/frontend/include/cudnn_frontend.h"
find VIRTUAL_ENV="$work/venv" CUDNN_FRONTEND_HOME="$work/frontend"
ok '  cudnn-frontend where it is told to be' has cudnn_frontend "$work/frontend/include"
printf '#!/bin/sh\necho %s %s\n' "$packages" "$work/none" >"$work/bin/python3"
chmod +x "$work/bin/python3"
find
ok 'wheels of python3' took "$packages/nvidia/cu13"

toolkit "$work/usr/local/cuda-13.0"
toolkit "$work/usr/local/cuda-13.2" 13.2
find VIRTUAL_ENV="$work/venv"
ok 'the newest /usr/local/cuda-* before wheels' took "$work/usr/local/cuda-13.2"
toolkit "$work/usr/local/cuda-13.10" 13.10
find
ok '  by number' took "$work/usr/local/cuda-13.10"
toolkit "$work/usr/local/cuda"
find
ok '/usr/local/cuda before it' took "$work/usr/local/cuda"
toolkit "$work/opt/on path"
ln -s "$work/opt/on path/bin/nvcc" "$work/bin/nvcc"
find
ok 'the nvcc on PATH before it, through a link' took "$work/opt/on path"
toolkit "$work/opt/path"
find CUDA_PATH="$work/opt/path"
ok 'CUDA_PATH before it' took "$work/opt/path"
toolkit "$work/opt/set"
find CUDA_PATH="$work/opt/path" CUDA_HOME="$work/opt/set"
ok 'CUDA_HOME before everything' took "$work/opt/set"

rm "$work/opt/set/lib64/libcudart_static.a"
find CUDA_PATH="$work/opt/path" CUDA_HOME="$work/opt/set"
ok 'what is not whole is passed over' took "$work/opt/path"
mkdir -p "$work/opt/set/targets/sbsa-linux/lib" && touch "$work/opt/set/targets/sbsa-linux/lib/libcudart_static.a"
find CUDA_HOME="$work/opt/set"
ok 'libraries below targets/' has library "$work/opt/set/targets/sbsa-linux/lib"

rm -r "$work/opt" "$work/usr" "$work/venv"
toolkit "$work/old" 12.9
toolkit "$work/broken"
rm "$work/broken/include/cuda_runtime_api.h"
find CUDA_HOME="$work/old" CUDA_PATH="$work/broken"
ok 'an older CUDA is no toolkit' eval '[[ $ended -eq 69 ]]'
ok '  which is said' says "$work/old: CUDA 12.9 is older than 13"
ok '  and what another lacks' says "$work/broken: no cuda_runtime_api.h"
# headers VERSION: the door to cuDNN, preprocessed with headers of cudnn-frontend that say so
headers() {
    mkdir -p "$work/door"
    touch "$work/door/cuda_runtime_api.h" "$work/door/zd_config.h"
    printf '#define CUDNN_FRONTEND_VERSION %s\n' "$1" >"$work/door/cudnn_frontend.h"
    ended=0
    c++ -E -I "$work/door" -I "$root" "$root/kernels/attention/cudnn_door.cpp" >out 2>err || ended=$?
}
headers 13200
ok 'cudnn-frontend 1.32 is taken' eval '[[ $ended -eq 0 ]]'
headers 13199
ok '  an older one is refused when compiling' eval '[[ $ended -ne 0 ]] && says "cudnn-frontend 1.32 or later is needed"'
tests_end
