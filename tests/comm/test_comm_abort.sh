#!/usr/bin/env bash
# What mpirun gives back when a rank ends the job or is stopped, and that it does so soon; TAP.
#   test_comm_abort.sh MPIRUN TEST_COMM_MPI
# shellcheck source=tests/support/tap.sh
. "$(dirname "$0")/../support/tap.sh"
mpirun=$1 program=$2
scratch_folder

# On a machine too busy for eight starts within comm.timeout it is tried again with more of it.
for seconds in 3 10 30; do
    ended=0
    TEST_COMM_TIMEOUT=$seconds timeout 100 "$mpirun" --oversubscribe -np 8 "$program" --stop 5 >"$work/said" 2>&1 </dev/null || ended=$?
    grep -q '^error.E0505.' "$work/said" || break
    again "eight ranks do not come together in $seconds s"
done
said=$(grep '^error' "$work/said")
[[ $ended -eq 75 && $said == 'error'*']: rank 5 on '* && $said != *$'\n'* ]]
tell $? 'of 2 x 2 x 2 ranks the one that is stopped is named'
echo "# ended with $ended: $said"
tests_end
