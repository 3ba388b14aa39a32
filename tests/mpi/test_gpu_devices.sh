#!/usr/bin/env bash
# Which GPU a rank gets, what is in the way, whose memory it is, and the CPUs near it: on the stand-in.
#   test_gpu_devices.sh ZEROD SOURCE_ROOT
source "$(dirname "$0")/lib.sh" "$1" "$2"
export ZD_STANDIN_GPUS=1 ZD_STANDIN_CONTEXT=8M ZD_STANDIN_MEMORY=2G OMP_NUM_THREADS=1
settings=(--set device.cpu_threads=1 --set train.max_steps=1 --set data.cutoff_len=16 --set train.global_batch_size=2
    --set train.per_device_train_batch_size=1 --set checkpoint.save_strategy=no --set checkpoint.export=none
    --set eval.eval_strategy=no --set control.socket=none)
cuda=("${settings[@]}" --set device.backend=cuda)

# refused NAME CODE TEXT FAILURES [ARGUMENT...]: 69, one error with that code, and what it says.
refused() {
    local run=$1 error=$2 text=$3
    export ZD_STANDIN_FAIL=$4
    shift 4
    run "$run" 0 "$@"
    unset ZD_STANDIN_FAIL
    check "$run: 69, $error" fails_with 69 "$error"
    check "$run: it says \"$text\"" says "$text"
}
# rank NAME KEY: the numbers of that key in status.json's ranks, in their order; text without quotes.
rank() { tr -d '\n' <"$1/status.json" | sed 's/.*"ranks"//' | grep -o "\"$2\": *[^,}]*" | sed 's/.*: *//; s/"//g'; }

refused no-driver E1201 "no NVIDIA driver" no_driver "${cuda[@]}"
refused no-gpu E1201 "sees no GPU" no_device "${cuda[@]}"
refused old-driver E1201 "install the NVIDIA driver" old_driver "${cuda[@]}"
refused busy E1202 "Stand-in GPU" busy "${cuda[@]}"
check "busy: it says what to do" says "nvidia-smi"
refused old-gpu E1203 "compute capability 9.0" no_code "${cuda[@]}"
refused full E1204 "of device memory" malloc:1 "${cuda[@]}"
refused not-there E1208 "no GPU 3" "" "${cuda[@]}" --set 'device.gpus="3"'
ZD_STANDIN_MEMORY=100M refused small E0601 "what is free on the GPU" "" "${cuda[@]}"

export ZD_STANDIN_FAIL=no_device
run fallback 0 "${settings[@]}" --set device.backend=auto
check "automatic takes the CPU where there is no GPU" code_is 0
check "and says so" says "the CPU computes: "
export ZD_STANDIN_FAIL=old_driver
run unsure 0 "${settings[@]}" --set device.backend=auto
check "but not where a driver is there and does not start" fails_with 69 E1201
check "whatever keeps it" says "install the NVIDIA driver"
export ZD_STANDIN_FAIL=busy
run insists 0 "${settings[@]}" --set device.backend=auto
check "nor where there is one that cannot be had" fails_with 69 E1202
unset ZD_STANDIN_FAIL

# What [comm] asks for and these ranks cannot have.
run on-cpu 0 "${settings[@]}" --set device.backend=cpu --set comm.backend=nccl
check "NCCL for ranks on the CPU: 78" fails_with 78 E1232
mkdir other-library
cp "$(ldd "$zerod" | sed -n 's/.*libjansson.* => \([^ ]*\).*/\1/p')" other-library/libnccl.so.2
ZEROD_LIBRARY_PATH=$folder/other-library run no-nccl 0 "${cuda[@]}" --set comm.backend=nccl
check "a library that is not NCCL: 69" fails_with 69 E1231
check "with what is missing in it" says "too old: it lacks nccl"
ZEROD_TEST_RANKS_PER_NODE=2 ZD_STANDIN_GPUS=3 run odd 3 "${cuda[@]}" --set train.global_batch_size=3 --set comm.hierarchical=true
check "two levels for three ranks on nodes of two: 78" fails_with 78 E1230

# The second of two ranks is left none, as on a host without one.
mkdir uneven-programs
printf '#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 0 ] || export CUDA_VISIBLE_DEVICES=\nexec "%s" "$@"\n' "$zerod" >uneven-programs/zerod
chmod +x uneven-programs/zerod
PATH=$folder/uneven-programs:$PATH run uneven 2 "${settings[@]}" --set device.backend=auto
check "ranks with and without a GPU do not mix, which is told once" fails_with 69 E1250
check "with the rank that has none" says "rank 1 on .* has none"

export ZD_STANDIN_BOARD=$folder/board
run shared 2 "${cuda[@]}" --set zero.stage=0
check "two ranks on one GPU run" code_is 0
check "which is noticed by its UUID" says "ranks 0, 1 share one GPU of .*(GPU-"
read -r -d '' first second _ <<<"$(rank shared held)" # its "memory" has them again
used=$(rank shared used | sort -n | tail -n 1)
check "each knows what of it is its own: $first and $second of $used" \
    [ "$first" -gt $((8 << 20)) ] && [ "$first" -eq "$second" ] && [ $((first + second)) -eq "$used" ]
unset ZD_STANDIN_BOARD
run nccl 1 "${cuda[@]}" --set comm.backend=nccl
check "what NCCL takes is planned for one rank too" grep -q '"collectives": *[1-9]' nccl/plan.json
run plan 1 "${cuda[@]}"
check "plan.json has what was measured" grep -q '"measured"' plan/plan.json

# A machine of two nodes, as a folder: the GPU hangs at the second.
mkdir -p sys/devices/system/node/node{0,1} sys/bus/pci/devices/0000:01:00.0
IFS=', -' read -r one _ <<<"$(taskset -cp $$ | sed 's/.*: //')"
last=$(taskset -cp $$ | sed 's/.*[ ,-]//')
echo "$one" >sys/devices/system/node/node0/cpulist
echo "$last" >sys/devices/system/node/node1/cpulist
echo 1 >sys/bus/pci/devices/0000:01:00.0/numa_node
if [[ $one == "$last" ]]; then
    skip "a rank computes near its GPU" "one CPU"
else
    export ZEROD_TEST_SYSFS=$folder/sys
    run near 0 "${cuda[@]}"
    check "a rank computes near its GPU" [ "$(rank near cpus)" = "$last" ]
    run anywhere 0 "${cuda[@]}" --set device.numa_bind=false
    check "unless it is not to" [ "$(rank anywhere cpus)" != "$last" ]
    run cpu 0 "${settings[@]}" --set device.backend=cpu
    check "on the CPU it stays where it was started" [ "$(rank cpu cpus)" = "$(rank anywhere cpus)" ]
fi
tests_end
