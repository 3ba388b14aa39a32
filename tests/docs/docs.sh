#!/bin/sh
# The pages name what the program has: every key of the job file, every error code, every metric, every recipe's
# keys.
#   docs.sh ZEROD PAGES TABLES      prints TAP; run from the repository's root
zerod=$1
. tests/support/tap.sh
scratch_folder
log=$work/log

while read -r page target; do
    "$2" "$3" page "docs/$page" >"$log" && diff -u "docs/$page" "$log" | sed 's/^/# /' >"$work/diff"
    [ -s "$log" ] && ! [ -s "$work/diff" ]; code=$?
    [ $code -eq 0 ] || { cat "$work/diff"; echo "# ninja -C build $target writes it"; }
    tell $code "docs/$page has what the programs have"
done <<'ROWS'
job.md job-page
measured/fit.md fit-page
metrics.md metrics-page
ROWS

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
