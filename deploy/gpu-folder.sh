# shellcheck shell=bash
# Source this: what the scripts for a GPU machine say and ask before they begin.

# What zerod says where no GPU, driver or cuBLASLt can be used: then nothing would run (docs/errors.md; bench/gpu_work.py has it too).
# shellcheck disable=SC2034
no_gpu='error\[(E1201|E1202|E1203|E1220)\]'

# usage: the comment at the head of the script that runs.
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

# refuse CODE WORD...: says why on stderr and ends.
refuse() {
    local code=$1
    shift
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit "$code"
}

# tell_usage ARGUMENT...: ends with 0 where help is asked for, with 64 where there is no argument.
tell_usage() {
    local word
    for word in "$@"; do
        if [[ $word == --help || $word == -h ]]; then
            usage
            exit 0
        fi
    done
    if [[ $# -eq 0 || -z $1 ]]; then
        usage >&2
        exit 64
    fi
}

# gpu_folder FOLDER: its absolute path in $folder; ends with 66 where it is neither a bundle nor a build folder with zerod in it.
gpu_folder() {
    [[ -d $1 ]] || refuse 66 "$1: no such folder"
    folder=$(readlink -f "$1")
    [[ -e $folder/payload.tar.xz || -x $folder/daemon/zerod ]] ||
        refuse 66 "$folder: neither a folder that deploy/bundle.sh made nor a build folder in which zerod was built"
}
