# gpu_lib.sh - ranks with a GPU each, on the stand-ins; after lib.sh.
export ZD_STANDIN_GPUS=8 ZD_STANDIN_CONTEXT=1M ZD_STANDIN_MEMORY=1G OMP_NUM_THREADS=1
settings=(--set device.backend=cuda --set device.cpu_threads=1 --set train.max_steps=2 --set data.cutoff_len=16)

# same_numbers RUN OTHER: losses, norms and exported weights have equal bits.
same_numbers() {
    [[ $(rows "$1") -eq 2 && $(column "$1" loss) == "$(column "$2" loss)" ]] || { echo "losses:" $(column "$1" loss) "|" $(column "$2" loss); return 1; }
    [[ $(column "$1" grad_norm) == "$(column "$2" grad_norm)" ]] || { echo "norms:" $(column "$1" grad_norm) "|" $(column "$2" grad_norm); return 1; }
    cmp "$1/hf/model.safetensors" "$2/hf/model.safetensors"
}

# same RUN OTHER: so they have, and the last run went well.
same() {
    [[ $code -eq 0 ]] || { echo "exit code $code"; return 1; }
    same_numbers "$@"
}

# differs RUN OTHER: the last run went well, to other numbers.
differs() {
    [[ $code -eq 0 ]] || { echo "exit code $code"; return 1; }
    ! same_numbers "$@" >/dev/null 2>&1
}
