#!/bin/sh
# OpenMP's threads spin a short while unless the user says otherwise, and no variable of the environment is changed.
#   test_spin.sh ENVIRONMENT ZEROD        prints TAP
. "$(dirname "$0")/../support/tap.sh"
scratch_folder
environment=$(realpath "$1") zerod=$(realpath "$2")
cd "$work" || exit 99
unset GOMP_SPINCOUNT OMP_WAIT_POLICY OMP_DISPLAY_ENV
shown='OMP_DISPLAY_ENV=verbose'

# spins_by COUNT COMMAND...: libgomp says that it spins so often
spins_by() {
    local count=$1
    shift
    "$@" 2>err >out && grep "GOMP_SPINCOUNT = '$count'" err
}
ok "a program spins by our count" spins_by 1000 env "$shown" "$environment"
ok "so does zerod" spins_by 1000 env "$shown" "$zerod" --version
ok "and where PATH is all there is" spins_by 1000 env -i "$shown" PATH=/nowhere "$environment"
ok "a count of the user's own is in force" spins_by 77 env "$shown" GOMP_SPINCOUNT=77 "$environment"
ok "so is a policy" spins_by 0 env "$shown" OMP_WAIT_POLICY=PASSIVE "$environment"
ok "with no variable to lend libgomp is left alone" spins_by 300000 env -i "$shown" "$environment"
ok "an empty environment is none to fail with" env -i "$environment"

# same VARIABLE=VALUE...: main and libc have these, in this order, beside what a constructor set
same() {
    env -i "$@" "$environment" >out || return
    printf '%s\n' "$@" >given
    for of in main libc; do
        sed -n "s/^$of //p" out | grep -v '^TEST_SET_EARLY=' | diff given - || return
    done
}
ok "the environment is as it came" same A=1 PATH=/nowhere _=last B=2 SHLVL=3
ok "a name that only begins like one is not taken" same PATHS=1 __=2 OLDPWDS=3
ok "also when a constructor made a copy of it" same A=1 TEST_SETS_EARLY=1 SHLVL=3 PATH=/nowhere
ok "and the copy has what that constructor set" grep -q '^libc TEST_SET_EARLY=1' out
tests_end
