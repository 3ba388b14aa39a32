#!/bin/sh
# Folders and their rooms include what the tables of STYLE.md let them, and no file speaks of work that is left to do, is a symbolic
# link or knows a machine by its paths.
#   structure.sh        prints TAP; run from the repository's root
. tests/support/tap.sh
scratch_folder

# The tables of STYLE.md of the repository in ROOT: "folder FOLDER what it may include", "all above" spelled out; and "room
# ROOM what it may include", "every room" likewise, "only" first where nothing else is let in.
tables() { # ROOT
    awk -F'|' '
        /^## /{ folders = /^## Folders/; rooms = /^## Rooms/ }
        (folders || rooms) && /^\| `/ {
            gsub(/[` ]/, "", $2)
            may = $4
            gsub(/`/, "", may)
            sub(/all above/, above, may)
            top = $2
            sub(/\/.*/, "", top)
            sub(/every room/, of[top], may)
            if (folders)
                above = above " " $2
            else
                of[top] = of[top] " " $2
            print (folders ? "folder " : "room ") $2, may
        }' "$1/STYLE.md"
}

# "FILE:LINE NAME" for what the files of all folders include by a name with a folder. One without is of the includer's own, or
# made by the build.
includes() { # ROOT
    (cd "$1" && tables . | awk '$1 == "folder" { print $2 }' | while read -r folder; do
        find "$folder" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.inc'
    done | xargs grep -noH '^ *# *include "[^"]*/[^"]*"' | sed 's/: *# *include "/ /; s/"$//')
}

# What the tables do not let in, and rows that name a room below their own.
odd_includes() { # ROOT
    { tables "$1"; includes "$1"; } | awk '
        function folder_of(name) { sub(/\/.*/, "", name); return name }
        function room_of(name) { sub(/\/[^\/]*$/, "", name); return name }
        $1 == "folder" { for (i = 2; i <= NF; i++) may[$2, $i] = 1; next }
        $1 == "room" {
            is_room[$2] = 1
            only[$2] = $3 == "only"
            for (i = 3 + only[$2]; i <= NF; i++) {
                room_may[$2, $i] = 1
                if ($i ~ /\// && !is_room[$i])
                    print "STYLE.md: " $2 " names " $i ", which does not stand above it"
            }
            next
        }
        {
            room = room_of($1)
            folder = folder_of($1)
            their = room_of($2)
            if (room != folder && !is_room[room])
                print $1 ": STYLE.md has no row for " room
            else if (folder_of($2) == "tests" || room == their)
                next
            else if (folder == folder_of($2) ? !room_may[room, their] : !may[folder, folder_of($2)] && !may[folder, $2] ||
                     only[room] && !room_may[room, their] && !room_may[room, folder_of($2)])
                print $1 " includes " $2
        }'
}

# Rooms that include each other, however many are between them.
room_circles() { # ROOT
    includes "$1" | awk '{
        sub(/\/[^\/]*$/, "", $1)
        sub(/\/[^\/]*$/, "", $2)
        if ($2 !~ /^tests/) print $1, $2
    }' | LC_ALL=C sort -u | LC_ALL=C tsort 2>&1 >"$work/sorted" | sed -n 's/^tsort: \([^ ]*\)$/\1/p'
}

tables . >"$work/table"
[ "$(grep -c ^folder "$work/table")" -eq 10 ]
tell $? "STYLE.md has a row for each folder"
odd_includes . | sed 's/^/# /' >"$work/odd"
cat "$work/odd"
[ ! -s "$work/odd" ]
tell $? "every folder, and every room of one, includes only what STYLE.md lets it"
room_circles . | sed 's/^/# /' >"$work/odd"
cat "$work/odd"
[ ! -s "$work/odd" ]
tell $? "no circle of rooms that include each other"

# What the program is made of knows the tests in one place: the emulator of tensor cores.
awk '$1 == "folder" { print $2 }' "$work/table" | xargs grep -rl '^ *# *include "tests/' >"$work/odd"
[ "$(cat "$work/odd")" = kernels/cuda/mma.cuh ]
tell $? "only kernels/cuda/mma.cuh includes something of the tests"

# Who shards and who sees which samples is asked of the mesh: only it divides the number of a rank (not local_rank, of a host).
divide_ranks() { # ROOT
    (cd "$1" && tables . | awk '$1 == "folder" { print $2 }' |
        xargs -I{} find {} -name '*.[ch]' -o -name '*.cu' | xargs grep -lE '(^|[^_a-z])rank [/%] [a-z(]|comm_rank\([^)]*\) [/%]')
}
[ "$(divide_ranks .)" = comm/mesh.c ]
tell $? "only comm/mesh.c divides the number of a rank"

# A tree with an arrow up, a room that nobody knows, and a circle that its table lets in.
plant() { # NAME, rows of rooms on standard input
    mkdir -p "$work/$1/low/under" "$work/$1/low/over" "$work/$1/high"
    {
        printf '## Folders\n| `low` | x | system headers |\n| `high` | x | all above |\n## Rooms\n'
        cat
    } >"$work/$1/STYLE.md"
    echo '#include "low/under/a.h"' >"$work/$1/low/over/a.c"
    echo '#include "low/over/a.h"' >"$work/$1/high/a.c"
}
plant good <<'END'
| `low/under` | x | |
| `low/over` | x | low/under |
END
[ -z "$(odd_includes "$work/good")$(room_circles "$work/good")" ]
tell $? "of a tree in order nothing is said"
cp -r "$work/good" "$work/up"
printf '#include "a.h"\n#include "low/over/b.h"\n' >"$work/up/low/under/a.c"
echo '#include "high/a.h"' >"$work/up/low/over/b.c"
mkdir "$work/up/high/new"
echo '#include "low/over/a.h"' >"$work/up/high/new/a.c"
odd_includes "$work/up" | LC_ALL=C sort | sed 's/[: ].*//' >"$work/found"
[ "$(cat "$work/found")" = "$(printf '%s\n' high/new/a.c low/over/b.c low/under/a.c)" ]
tell $? "an arrow up, and a room without a row, would be found"
echo 'int node = comm->rank / per_node, place = comm_rank(comm) % 4;' >"$work/up/high/a.c"
[ "$(divide_ranks "$work/up")" = high/a.c ]
tell $? "a rank's number that is divided elsewhere would be found"
plant circle <<'END'
| `low/under` | x | low/over |
| `low/over` | x | low/under |
END
echo '#include "low/over/b.h"' >"$work/circle/low/under/a.c"
[ "$(odd_includes "$work/circle")" = 'STYLE.md: low/under names low/over, which does not stand above it' ] &&
    [ "$(room_circles "$work/circle" | LC_ALL=C sort | tr '\n' ' ')" = 'low/over low/under ' ]
tell $? "a circle of rooms would be found, and the row that lets it in"
plant narrow <<'END'
| `low/under` | x | |
| `low/over` | x | low/under |
| `high` | x | only low/under |
END
odd_includes "$work/narrow" | grep -q '^high/a.c:1 includes low/over/a.h'
tell $? "what a room with \"only\" does not name would be found"

# What no file that is tracked may hold, and a repository with one of each: FOLDER of a repository. This file is one of
# them, so that its own examples are put together from pieces.
left_to_do() {
    git -C "$1" grep -InwE 'TO[D]O|FIX[M]E|X[X]X|HA[C]K|TB[D]|WI[P]'
}
links() {
    git -C "$1" ls-files -s | sed -n 's/^120000 [^\t]*\t//p'
}
machine_paths() {
    git -C "$1" grep -InE '(^|[^[:alnum:]_.}])/(work|root|home/[[:alnum:]_.-]+)/'
}
# A reader that leaves early kills the writer by SIGPIPE, now and then, and with pipefail that is a failure: bash writes line
# by line. `grep >/dev/null` and `sed -n 1p` read to the end.
early_ends() {
    git -C "$1" grep -lz pipefail -- '*.sh' | (cd "$1" && xargs -0r awk '
        FNR == 1 { on = 0 }
        /^set .*pipefail/ { on = 1 }
        on && /\|[[:space:]]*(grep -[[:alpha:]]*q|head |awk .*exit)/ { print FILENAME ":" FNR ": " $0 }')
}

tell_none() { # CHECK NAME
    "$1" . | sed 's/^/# /' >"$work/odd"
    cat "$work/odd"
    [ ! -s "$work/odd" ]
    tell $? "$2"
}
: >"$work/odd"
if ! command -v git >/dev/null || ! git rev-parse HEAD >/dev/null 2>"$work/odd"; then
    skip "what tracked files hold" "git is not here, or does not know these files: $(cat "$work/odd")"
    tests_end
fi
tell_none left_to_do "nothing is marked as left to do"
tell_none links "no symbolic link is tracked"
tell_none machine_paths "no file names a path of one machine"
tell_none early_ends "no pipe with pipefail has a reader that leaves early"

git init -q "$work/bad"
printf 'int x; /* TO%s: y */\nis todo, hackneyed, mktemp x.XXXXXX\n' DO >"$work/bad/a.c"
printf 'See FIX%s.\n' ME >"$work/bad/a.md"
printf 'run /%s/x/y\ncc="/%s/bin/cc"\n/%s/ann/zerod\n' work root home >"$work/bad/a.sh"
printf '$work/%s/x /home/ ${b}/%s/z\n' root work >>"$work/bad/a.sh"
ln -s a.c "$work/bad/b.c"
printf 'a | grep -q b\nset -uo pipefail\na | sed -n 1p\na | %s -n 1\na | %s -xq b\n' head grep >"$work/bad/b.sh"
git -C "$work/bad" add -A
left_to_do "$work/bad" | cut -d: -f1,2 >"$work/found"
[ "$(cat "$work/found")" = "$(printf '%s\n' a.c:1 a.md:1)" ]
tell $? "a mark of work left to do would be found"
[ "$(links "$work/bad")" = b.c ]
tell $? "a symbolic link would be found"
machine_paths "$work/bad" | cut -d: -f1,2 >"$work/found"
[ "$(cat "$work/found")" = "$(printf '%s\n' a.sh:1 a.sh:2 a.sh:3)" ]
tell $? "a path of a machine would be found"
[ "$(early_ends "$work/bad" | cut -d: -f1,2)" = "$(printf '%s\n' b.sh:4 b.sh:5)" ]
tell $? "a reader that leaves early would be found"
tests_end
