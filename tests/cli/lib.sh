# lib.sh - what test_commands.sh, test_plan.sh and test_recipes.sh share; sourced with ZEROD and SOURCE.
#   call CODE ARGUMENT...   zerod ends with CODE within a minute; stdout in `out`, stderr in `err`
#   has PATTERN FILE
. "$2/tests/support/tap.sh"
zerod=$(realpath "$1")
scratch_folder
cd "$work" || exit 99
# What is planned and told here is the CPU's, also where there is a GPU or its stand-in.
export CUDA_VISIBLE_DEVICES=
export LC_ALL=C.UTF-8 OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

call() {
    local want=$1 code
    shift
    timeout 60 "$zerod" "$@" >out 2>err </dev/null
    code=$?
    [ $code = "$want" ] || { echo "exit $code, not $want: $*"; return 1; }
}
has() { grep -qE -e "$1" "$2"; }
