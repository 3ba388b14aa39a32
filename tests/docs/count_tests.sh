#!/bin/sh
# What deploy/test.sh says in the end: tests counted, and what was tried again told.
#   count_tests.sh      prints TAP; run from the repository's root
. tests/support/tap.sh
scratch_folder
cat >"$work/log.json" <<'END'
{"name": "mpi_resume", "result": "OK", "stdout": "# SEED=1\n# again: kill -9 of rank 0: the run had ended before, with 0\nok 1 - a\nnot ok 2 - b # SKIP c\nok 3 - d\n1..3\n"}
{"name": "whole", "result": "OK", "stdout": ""}
{"name": "cut", "result": "TIMEOUT", "stdout": "ok 1 - a\n    # again: late: two seconds\n"}
END
count() { python3 deploy/count_tests.py "$@" "$work/log.json"; }
[ "$(count)" = '4 1 1' ]
tell $? 'passed, failed, skipped'
[ "$(count --retries)" = 'mpi_resume: kill -9 of rank 0: the run had ended before, with 0
cut: late: two seconds' ]
tell $? 'each retry, of tests that passed too'
# A loop that tries again says so: `try`, `attempt` or `seconds` count from what fails to what may not.
for file in $(grep -lE 'for .*\<(try|attempt|seconds)\>.*(code == 0|http == 0|!is_right|stopped|30)' -r tests --include='*.sh' --include='*.c'); do
    grep -qE '\<(again|tap_again|tell_again)\>' "$file" || echo "# $file"
done >"$work/silent"
cat "$work/silent"
[ ! -s "$work/silent" ]
tell $? 'no loop that tries again is silent'
tests_end
