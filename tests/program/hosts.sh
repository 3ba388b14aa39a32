#!/usr/bin/env bash
# Eight ranks on whatever cores there are, and two hosts (network namespaces) with TCP between them: the losses of one rank.
#   hosts.sh ZEROD EXPECTED          prints TAP; run from the repository's root
set -uo pipefail
zerod=$1 expected=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# What a user without --oversubscribe on the command line sets, for Open MPI 4 and 5.
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
fixture=tests/fixtures/llama
. tests/support/tap.sh
scratch_folder

show() { tail -n 8 "$work/log" | sed 's/^/# /'; }

job=("$zerod" --job "$fixture/job.toml" --set "data.cache_dir=$work/cache" --set log.progress=lines)
for stage in 1 2 3; do
    code=0
    timeout 250 mpirun -np 8 "${job[@]}" --set zero.stage=$stage --set "job.output_dir=$work/eight" >"$work/log" 2>&1 || code=$?
    [[ $code -eq 0 ]] || show
    if [[ $code -eq 0 ]]; then "$expected" run "$fixture" "$work/eight" fp32 || code=$?; fi
    tell $code "mpirun -np 8, stage $stage"
    rm -rf "$work/eight"
done

hosts=deploy/netns/two-hosts.sh
code=0
timeout 250 $hosts -n 4 "${job[@]}" --set zero.stage=3 --set "job.output_dir=$work/shared" >"$work/log" 2>&1 || code=$?
if [[ $code -eq 77 ]]; then
    why=$(grep -h 'two-hosts: skipped' "$work/log" | sed -n 1p)
    skip "two hosts, output_dir shared" "${why#two-hosts: skipped: }"
    skip "two hosts, output_dir not shared" "${why#two-hosts: skipped: }"
else
    [[ $code -eq 0 ]] || show
    if [[ $code -eq 0 ]]; then "$expected" run "$fixture" "$work/shared" fp32 || code=$?; fi
    tell $code "two hosts, output_dir shared"

    code=0
    mkdir "$work/private"
    timeout 250 $hosts -n 4 -u "$work/private" "${job[@]}" --set "job.output_dir=$work/private" >"$work/log" 2>&1 || code=$?
    if [[ $code -eq 73 && $(grep -c '^error' "$work/log") -eq 1 && -z $(ls "$work/private" | grep checkpoint) ]]; then
        code=0
    else
        echo "# it ended with $code"
        show
        code=1
    fi
    tell $code "two hosts, output_dir not shared: refused before step 1, once"
fi
tests_end
