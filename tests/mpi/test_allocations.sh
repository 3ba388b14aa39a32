#!/usr/bin/env bash
# A system that refuses memory once: of two ranks one is refused one allocation, at COUNT places of the program that ask for
# any (0: at all of them, which takes hours). Both ranks end with one error, or all is made that would have been made.
#   test_allocations.sh ZEROD SOURCE_ROOT LIBFAULTS COUNT
source "$(dirname "$0")/lib.sh" "$1" "$2"
faults=$3 count=$4
source "$source_root/tests/support/small_job.sh"
small_job tests/fixtures

# refuse NAME RANK SETTING..: a run in which the settings of tests/support/faults.c hold for this rank.
refuse() {
    local settings=(-x LD_PRELOAD="$faults" -x ZEROD_TEST_FAULT_RANK="$2") each
    name=$1 code=0
    shift 2
    for each; do settings+=(-x "$each"); done
    timeout -k 5 120 mpirun -np 2 "${settings[@]}" zerod --job job.toml --set job.output_dir="$name" \
        --set job.name="$name" --set data.cache_dir="$name/cache" >"$name.out" 2>"$name.err" || code=$?
}
# What others look at (status, the page of a run) may be without: a warning says so.
made_the_same() {
    same_run whole-0 "$name" && verifies "$name/checkpoint-000003" || return 1
    grep -q '^warning' "$name.err" || diff <(cd whole-0 && ls . hf) <(cd "$name" && ls . hf)
}
ends_well() {
    [[ $code -ne 0 ]] || { no_error && made_the_same; return; }
    [[ $code -eq 69 || $code -eq 74 ]] || { echo "exit code $code"; return 1; }
    [[ $(grep -c '^error' "$name.err") -eq 1 ]] || { grep '^error' "$name.err" || echo "no error is told"; return 1; }
    ! grep 'on signal' "$name.err"
}

asks_at_many() { code_is 0 && [[ $(wc -l <places-$rank) -gt 200 ]]; }

for rank in 0 1; do
    refuse whole-$rank $rank ZEROD_TEST_FAULT_LOG="$folder/places-$rank"
    check "rank $rank asks for memory at many places" asks_at_many
    # one place for each pair of the innermost calls, in the order in which they are first asked
    sort -n places-$rank | awk '!seen[$3, $4]++ { print $1, $2 }' >each-$rank
    awk -v all="$(wc -l <each-$rank)" -v count="$count" '
        count == 0 || int(NR * count / all) > int((NR - 1) * count / all)' each-$rank >chosen-$rank
    while read -r number place; do
        refuse "refused-$rank-$number" $rank ZEROD_TEST_FAULT="@$place" </dev/null
        check "rank $rank is refused allocation $number: exit code $code" ends_well
        rm -rf "$name"
    done <chosen-$rank
done
tests_end
