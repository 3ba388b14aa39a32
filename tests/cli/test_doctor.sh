#!/usr/bin/env bash
# What `zerod doctor` says of a machine and of a job: a warning is no error, what would stop the job is 69, and ranks
# that differ are told.
#   test_doctor.sh ZEROD SOURCE [gpu]       prints TAP; gpu: on the stand-ins, two GPUs without NCCL
. "$2/tests/cli/lib.sh"
kind=${3:-cpu}

cp "$2/tests/cli/doctor.toml" job.toml
seq 100 >data.txt
json() { # EXPRESSION of d: printed
    python3 -I -c 'import json, sys
d = json.load(open("out"))
print(eval(sys.argv[1]))' "$1"
}
says() { [ "$(json "$1")" = "$2" ] || { echo "$1 is $(json "$1"), not $2"; return 1; }; }

if [ "$kind" = cpu ]; then
    ulimit -l 16
    ok "a machine without a GPU is no error" call 0 doctor
    ok "what declines has a cost and a fix" sh -c 'grep -A2 "^warning: only 16 KiB" out | grep -q "^  costs: " && grep -A2 "^warning: only 16 KiB" out | grep -q "^  fix: ulimit -l"'
    ok "as JSON" call 0 doctor --format json
    ok "its findings" says 'd["findings"][0]["level"], d["stops"], d["ranks"]' "('warning', False, 1)"
    ok "a job that would start" call 0 doctor --job job.toml
    ok "says so" has '^nothing here stops the job' out
    ok "one that does not fit" call 69 doctor --job job.toml --set device.memory_limit=1MiB
    ok "says so" eval 'has "^stops the job: \[E0601\] does not fit" out && has "^the job would not start$" out'
    ok "its help has lines" eval '! grep -F "\n" out && has "^  fix: " out'
    ok "one that wants a GPU" call 69 doctor --job job.toml --set device.backend=cuda --format json
    ok "has a code" says '[f["code"] for f in d["findings"] if f["level"] == "stop"][0]' E1201
    ok "a job file that is wrong is 78" call 78 doctor --job job.toml --set train.max_steps=-7
    # What the doctor says itself, and the help of errors that it passes on: each value is one that a job may have.
    grep -rhoE '\b(aio|comm|device|model|offload)\.[a-z_]+ = (\\"[a-z_0-9]+\\"|true|false)' --include=*.c "$2"/daemon/doctor "$2"/offload "$2"/base "$2"/comm "$2"/kernels |
        tr -d '\\' | sed 's/ = /=/' | sort -u >fixes
    taken() { "$zerod" validate job.toml --set offload.optimizer="$1" --set offload.nvme_path=. --set "$2" >out 2>&1; }
    all_taken() {
        local set
        [ "$(wc -l <fixes)" -ge 10 ] || return 1
        while read -r set; do taken nvme "$set" || taken cpu "$set" || { echo "$set" && cat out && return 1; }; done <fixes
    }
    ok "each value that a fix names is one that validate takes" all_taken
    rm -f fixes
    cat >rank.sh <<SH
[ "\$OMPI_COMM_WORLD_RANK" != 1 ] || ulimit -l 8
exec "$zerod" doctor "\$@"
SH
    ranks() { timeout 60 mpirun --oversubscribe -np 2 sh rank.sh "$@" >out 2>err </dev/null; }
    ok "two ranks" ranks --job job.toml
    ok "are compared" has '^differs    lockable memory: 16384 on rank 0, 8192 on rank 1' out
    ok "what one of them alone has found names it" has '^warning: rank 1: only 8 KiB' out
    ok "one of them tells" sh -c '[ $(grep -c "^host " out) = 1 ]'
else
    unset CUDA_VISIBLE_DEVICES
    export ZD_STANDIN_GPUS=2 ZD_STANDIN_CONTEXT=1M ZD_STANDIN_MEMORY=1G
    ok "a machine with GPUs" call 0 doctor --job job.toml --format json
    ok "lists them" says 'len(d["gpus"])' 2
    ok "with the library that it opened" says '[l["path"].split("/")[-1] for l in d["libraries"] if l["name"] == "cuBLASLt"]' "['libcublasLt.so.13']"
    ok "who does attention" says 'sorted({a["engine"] for a in d["attention"]})' "['own']"
    ok "within which window" says '{a["window"] for a in d["attention"]}' "{16}"
    export ZD_STANDIN_CAPABILITY=8.6
    ok "a job in FP8 on a GPU that has none" call 78 --job job.toml --set device.backend=cuda --set train.fp8=tensorwise
    ok "is told what it needs" has 'E0213.*needs a GPU of compute capability 8.9 or higher, and .* has 8.6' err
    export ZD_STANDIN_CAPABILITY=12.0
    ok "in blocks" call 78 --job job.toml --set device.backend=cuda --set train.fp8=blockwise
    ok "what does" has 'train.fp8 = "tensorwise"' err
    unset ZD_STANDIN_CAPABILITY
    ok "a lost library stops the job" env ZEROD_CUBLASLT=/nowhere/libcublasLt.so.13 bash -c "! '$zerod' doctor --job job.toml >out 2>err"
    ok "with its code" has '^stops the job: \[E1220\]' out
fi
tests_end
