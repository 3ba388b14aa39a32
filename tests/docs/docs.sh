#!/bin/sh
# The pages name what the program has: every key of the job file, every error code, every metric, every recipe's
# keys.
#   docs.sh ZEROD ZEROD_DOCS        prints TAP; run from the repository's root
zerod=$1
docs=$2
. tests/support/tap.sh
scratch_folder
log=$work/log

"$docs" page docs/job.md >"$log" && diff -u docs/job.md "$log" | sed 's/^/# /' >"$work/diff"
[ -s "$log" ] && ! [ -s "$work/diff" ]; code=$?
[ $code -eq 0 ] || { cat "$work/diff"; echo "# ninja -C build job-page writes it"; }
tell $code "docs/job.md has every key as the program has it"

"$docs" fits docs/measured/fit.md >"$log" && diff -u docs/measured/fit.md "$log" | sed 's/^/# /' >"$work/diff"
[ -s "$log" ] && ! [ -s "$work/diff" ]; code=$?
[ $code -eq 0 ] || { cat "$work/diff"; echo "# ninja -C build fit-page writes it"; }
tell $code "docs/measured/fit.md has what --fit finds"

"$docs" metrics docs/metrics.md >"$log" && diff -u docs/metrics.md "$log" | sed 's/^/# /' >"$work/diff"
[ -s "$log" ] && ! [ -s "$work/diff" ]; code=$?
[ $code -eq 0 ] || { cat "$work/diff"; echo "# ninja -C build metrics-page writes it"; }
tell $code "docs/metrics.md has every metric as the program has it"

sources=$(find base kernels comm data model optim offload zero train daemon -name '*.c' -o -name '*.cpp' -o -name '*.cu')
used=$(grep -ohE '"E[0-9]{4}"' $sources | tr -d '"' | sort -u)
listed=$(grep -E '^\| E[0-9]{4}' docs/errors.md | cut -d'|' -f2 | grep -oE 'E[0-9]{4}' | sort)
odd=$(printf '%s\n%s\n' "$used" "$listed" | sort | uniq -u; echo "$listed" | uniq -d)
[ -z "$odd" ]; code=$?
[ -z "$odd" ] || echo "# only in the sources, only in the page, or twice in it:" $odd
tell $code "docs/errors.md has every error code once, and no other"

missing=$(grep -oE '^OPTIM_(WORD|ALIAS)\("[a-z0-9_]+"' optim/optimizers.inc | cut -d'"' -f2 |
    while read -r word; do grep -qF "\`$word\`" docs/optimizers.md || echo "# $word"; done)
[ -z "$missing" ]; code=$?
echo "$missing" | grep . ; tell $code "docs/optimizers.md has every word of optim.name"

for recipe in deploy/recipes/*.toml; do
    # Models and data that a recipe names are the user's: 66 says that they are not there, and that nothing else is wrong.
    "$zerod" validate "$recipe" --world 8 >/dev/null 2>"$log"
    code=$?
    [ $code -eq 66 ] && code=0
    [ $code -eq 0 ] || sed 's/^/# /' "$log"
    tell $code "$recipe is a valid job"
done
tests_end
