#!/usr/bin/env bash
# One cause, one line that begins with error, mpirun's code is that of the cause: however many ranks there are.
source "$(dirname "$0")/lib.sh" "$1" "$2"

# from_rank.sh FIRST SETTING ARGUMENT...: zerod with --set SETTING on the ranks from FIRST on. (One program for all ranks:
# Open MPI 5.0.7's mpirun crashes on some command lines with several.)
cat >from_rank.sh <<'END'
#!/usr/bin/env bash
first=$1 setting=$2
shift 2
[[ $OMPI_COMM_WORLD_RANK -lt $first ]] || set -- "$@" --set "$setting"
exec zerod "$@"
END
chmod +x from_rank.sh

code=0 name=differs
timeout -k 5 200 mpirun -np 4 ./from_rank.sh 1 optim.learning_rate=3e-3 --job job.toml --set job.output_dir=differs \
    >differs.out 2>differs.err || code=$?
check "job files that differ between ranks: 78" fails_with 78 E0217
check "it says in what" says learning_rate
check "nothing was written" [ ! -e differs ]

code=0 name=wrong
timeout -k 5 200 mpirun -np 4 ./from_rank.sh 2 optim.lerning_rate=3e-3 --job job.toml --set job.output_dir=wrong \
    >wrong.out 2>wrong.err || code=$?
check "a mistake in one rank's job: 78, told once" fails_with 78

run key 4 --set zero.stag=3
check "a mistake in the job: 78, told once" fails_with 78
run model 4 --set model.path=nowhere
check "a model that is not there: 66, told once" fails_with 66

cp -r tests/fixtures/llama_odd/model broken
head -c 1000 tests/fixtures/llama_odd/model/model.safetensors >broken/model.safetensors
run weights 4 --set model.path=broken
check "a truncated model: 65, told once" fails_with 65
check "and who had it" says "ranks 0-3"
sed "s|\"tests/fixtures/llama_odd/data.bin\"|\"short.bin\"|; s|llama_odd/data.jsonl|short.bin|" job.toml >short.toml
printf 'not tokens at all' >short.bin
cp job.toml good.toml && cp short.toml job.toml
run data 4
check "data that is broken: 65, told once" fails_with 65
cp good.toml job.toml
run limit 4 --set device.memory_limit=1MiB
check "a job that does not fit: 69, told once" fails_with 69
touch file
name=file-out code=0
timeout -k 5 200 mpirun -np 4 zerod --job job.toml --set job.output_dir=file/out >file-out.out 2>file-out.err || code=$?
check "an output_dir that cannot be made: 73, told once" fails_with 73
run usage 4 --nonsense
check "a command line that is none: 64, told once" fails_with 64
run batch 4 --set train.global_batch_size=30
check "a batch that does not divide: 78, told once" fails_with 78

# --- offload that cannot be had: once, before anything is written ---
offload() { # NAME ARGUMENT...
    local run_name=$1
    shift
    run "$run_name" 2 --set offload.optimizer=nvme --set offload.nvme_path=disk "$@"
}
offload no-folder
check "a folder for NVMe that does not exist: 66" fails_with 66 E0656
mkdir disk
offload undo --set offload.clipping=undo
check "an update from NVMe that could be undone: 78" fails_with 78 E0650
offload params --set offload.params=nvme --set zero.stage=1
check "parameters away from the device at stage 1: 78" fails_with 78 E0661
if [ "$(id -u)" = 0 ]; then # nothing is free there
    offload full --set offload.nvme_path=/proc
    check "a disk that is full: 69" fails_with 69 E0657
else
    skip "a disk that is full: 69" "needs root"
fi
check "nothing is left on the disk" [ -z "$(ls -A disk)" ]
tests_end
