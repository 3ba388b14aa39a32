# complete.bash SCRIPT PROGRAM LINE...: what bash would offer at the end of each line, one line each.
. "$1"
program=$2
shift 2
for COMP_LINE; do
    COMP_POINT=${#COMP_LINE}
    COMPREPLY=()
    "_$program"
    echo "${COMPREPLY[*]}"
done
