#!/usr/bin/env bash
# What mpirun gives back when a rank ends the job or is stopped, and that it does so soon; TAP.
#   test_comm_abort.sh MPIRUN TEST_COMM_MPI
# shellcheck source=tests/support/tap.sh
. "$(dirname "$0")/../support/tap.sh"
mpirun=$1 program=$2
scratch_folder

# ends NAME CODE ERROR RANKS ARGUMENT...: with CODE, and with one line of an error that ERROR matches; '': with none
ends() {
    local name=$1 code=$2 error=$3 ranks=$4 ended=0 said
    shift 4
    timeout 100 "$mpirun" --oversubscribe -np "$ranks" "$program" "$@" >"$work/said" 2>&1 </dev/null || ended=$?
    said=$(grep '^error' "$work/said")
    # shellcheck disable=SC2053
    [[ $ended -eq $code && $said == $error && $said != *$'\n'* ]]
    tell $? "$name"
    echo "# ended with $ended: $said"
}
ends 'of 2 x 2 x 2 ranks the one that is stopped is named' 75 'error*]: rank 5 on *' 8 --stop 5
tests_end
