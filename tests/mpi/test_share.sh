#!/usr/bin/env bash
# Ranks that wait leave the cores to those that compute: 4 ranks on 2 cores take at most 1.3 times as long as 2, for the
# same work. Fastest step of each, best of three pairs.
source "$(dirname "$0")/lib.sh" "$1" "$2"
[[ $(nproc) -ge 2 ]] || skip_all "needs two cores"
cp tests/mpi/share.toml job.toml
median() { column "$1" step_seconds | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
for stage in 1 3; do
    best=99
    for try in 1 2 3; do
        for ranks in 2 4; do
            run $ranks-$stage-$try $ranks --set zero.stage=$stage --set device.cpu_threads=1
        done
        ratio=$(awk -v a="$(median 2-$stage-$try)" -v b="$(median 4-$stage-$try)" 'BEGIN { print b / a }')
        note "stage $stage: 2 ranks $(median 2-$stage-$try) s a step, 4 ranks $(median 4-$stage-$try) s: $ratio"
        best=$(awk -v a="$best" -v b="$ratio" 'BEGIN { print a < b ? a : b }')
        awk -v r="$best" 'BEGIN { exit !(r <= 1.3) }' && break
        [[ $try -eq 3 ]] || again "stage $stage: 4 ranks take $ratio times the time of 2"
    done
    check "stage $stage: 4 ranks take $best times the time of 2" awk -v r="$best" 'BEGIN { exit !(r <= 1.3) }'
done
tests_end
