#!/bin/sh
# The folders include what the table of STYLE.md lets them, and no source speaks of work that is left to do.
#   structure.sh        prints TAP; run from the repository's root
. tests/support/tap.sh
scratch_folder

# "FOLDER what it may include" for each row; "all above" is spelled out.
awk -F'|' '/^## /{on = /^## Folders/} on && /^\| `/{
    gsub(/[` ]/, "", $2)
    may = $4
    gsub(/`/, "", may)
    if (may ~ /all above/) may = above
    above = above " " $2
    print $2, may
}' STYLE.md >"$work/table"
[ "$(wc -l <"$work/table")" -eq 10 ]
tell $? "STYLE.md has a row for each folder"

# A name without a folder is of the includer's own folder, or made by the build.
while read -r folder may; do
    find "$folder" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' |
        xargs grep -no '^ *# *include "[^"]*/[^"]*"' | tr -d '"' |
        while IFS=: read -r file line include; do
            name=${include##* }
            case " $folder tests $may " in
            *" ${name%%/*} "* | *" $name "*) ;;
            *) echo "# $file:$line includes $name" ;;
            esac
        done
done <"$work/table" >"$work/odd"
cat "$work/odd"
[ ! -s "$work/odd" ]
tell $? "every folder includes only what STYLE.md lets it"

# What the program is made of knows the tests in one place: the emulator of tensor cores.
cut -d' ' -f1 "$work/table" | xargs grep -rl '^ *# *include "tests/' >"$work/odd"
[ "$(cat "$work/odd")" = kernels/mma.cuh ]
tell $? "only kernels/mma.cuh includes something of the tests"

git grep -nwE 'TODO|FIXME|XXX|HACK' -- '*.[ch]' '*.cu' '*.cuh' '*.cpp' '*.sh' '*.py' '*.build' ':!tests/docs/structure.sh' |
    sed 's/^/# /' >"$work/odd"
cat "$work/odd"
[ ! -s "$work/odd" ]
tell $? "nothing is marked as left to do"
tests_end
