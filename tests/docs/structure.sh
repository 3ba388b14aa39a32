#!/bin/sh
# The sources know the tests in one place, and one file divides the number of a rank; no file speaks of work that is left to do, is a
# symbolic link or knows a machine by its paths.
#   structure.sh        prints TAP; run from the repository's root
. tests/support/tap.sh
scratch_folder

# The folders of STYLE.md of the repository in ROOT.
folders() { # ROOT
    sed -n '/^## Folders/,/^## Rooms/s/^| `\([^`]*\)`.*/\1/p' "$1/STYLE.md"
}

# What the program is made of knows the tests in one place: the emulator of tensor cores.
folders . | xargs grep -rl '^ *# *include "tests/' >"$work/odd"
[ "$(cat "$work/odd")" = kernels/cuda/mma.cuh ]
tell $? "only kernels/cuda/mma.cuh includes something of the tests"

# Who shards and who sees which samples is asked of the mesh: only it divides the number of a rank (not local_rank, of a host).
divide_ranks() { # ROOT
    (cd "$1" && folders . |
        xargs -I{} find {} -name '*.[ch]' -o -name '*.cu' | xargs grep -lE '(^|[^_a-z])rank [/%] [a-z(]|comm_rank\([^)]*\) [/%]')
}
[ "$(divide_ranks .)" = comm/mesh.c ]
tell $? "only comm/mesh.c divides the number of a rank"

mkdir -p "$work/up/high"
printf '## Folders\n| `high` | x | |\n## Rooms\n' >"$work/up/STYLE.md"
echo 'int node = comm->rank / per_node, place = comm_rank(comm) % 4;' >"$work/up/high/a.c"
[ "$(divide_ranks "$work/up")" = high/a.c ]
tell $? "a rank's number that is divided elsewhere would be found"
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
