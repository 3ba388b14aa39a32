#!/usr/bin/env bash
# Many ranks on few cores, every stage: the losses of one rank; at one world the same bits, over MPI as over threads.
source "$(dirname "$0")/lib.sh" "$1" "$2"
local_run=$3

run alone 0 --set zero.stage=0
check "one rank, without mpirun" code_is 0

for stage in 1 2 3; do
    write_job eight-$stage | sed "\$a[zero]\nstage = $stage\n[parallel]\ndp_replicate_size = $((4 >> stage - 1))" >job.toml
    name=eight-$stage code=0
    timeout -k 5 200 mpirun -np 8 zerod --job job.toml >$name.out 2>$name.err || code=$?
    check "mpirun -np 8 zerod --job job.toml, stage $stage, ends in bounded time" code_is 0
    check "stage $stage on 8 ranks: losses as with one" near alone $name
    check "stage $stage on 8 ranks: one thread each" says "8 (8 on this host) x 1 thread,"
done
write_job out >job.toml

for dtype in fp32 bf16; do
    for stage in 0 1 2 3; do
        # over threads all stages are compared in both types: tests/train
        [[ $dtype = fp32 || $stage -eq 0 || $stage -eq 3 ]] || continue
        run $dtype-$stage 3 --set zero.stage=$stage --set train.dtype=$dtype
        check "$dtype, stage $stage on 3 ranks" code_is 0
        [[ $stage -eq 0 ]] || check "$dtype: stage $stage has the bits of stage 0" same_run $dtype-0 $dtype-$stage
    done
    "$local_run" job.toml 3 threads-$dtype zero.stage=3 train.dtype=$dtype 2>$dtype-3.err
    check "$dtype: 3 ranks over MPI have the bits of 3 threads" same_run $dtype-3 threads-$dtype/out
done

# Groups on every axis, and all operations.
sent() { sed -n 's/.*"wire_bytes":\(.*\),"phase_seconds".*/\1/p' "$1/metrics.jsonl"; }
same_sent() { diff <(sent "$1") <(sent "$2") && sent "$1" | grep -q "\"cp\":{\"$3\":[0-9]"; }
write_job out gpt2 >job.toml
for mesh in "fp32 2 allgather reduce_scatter" "bf16 3 a2a all_to_all"; do
    read -r dtype stage exchange operation <<<"$mesh"
    sets=(parallel.dp_replicate_size=2 parallel.cp_size=2 parallel.tp_size=2 parallel.cp_comm_type=$exchange
        zero.stage=$stage train.dtype=$dtype train.max_steps=5)
    run $exchange 8 "${sets[@]/#/--set=}"
    check "replicate 2 x cp 2 x tp 2: the banner says how attention is shared" says "x cp 2 x tp 2; attention by $exchange\$"
    "$local_run" job.toml 8 threads-$exchange "${sets[@]}" 2>$exchange.err
    check "replicate 2 x cp 2 x tp 2 ($exchange, $dtype) over MPI has the bits of threads" same_run $exchange threads-$exchange/out
    check "  and sends the same in each group" same_sent $exchange threads-$exchange/out $operation
done
tests_end
