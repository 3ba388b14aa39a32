#!/bin/sh
# What the shells offer behind TAB, asked of the shells themselves; one that is not installed is skipped.
#   completions.sh ZEROD ZERODCTL        prints TAP; run from the repository's root
PATH=$(cd "$(dirname "$1")" && pwd):$(cd "$(dirname "$2")" && pwd):$PATH
here=$(dirname "$0")
. "$here/../support/tap.sh"
scratch_folder
mkdir -p "$work/zerod" "$work/here/out"
: >"$work/here/job.toml"
# Sockets: two of jobs, one whose name a shell would run, and a file that is none. Nothing in another folder is looked at.
python3 -I -c '
import socket, sys
for path in sys.argv[1:]:
    socket.socket(socket.AF_UNIX).bind(path)
' "$work/zerod/first.sock" "$work/zerod/second.sock" "$work/zerod/f\$(touch\${IFS}ran).sock" "$work/zerod/f;touch ran;.sock"
: >"$work/zerod/file.sock"

# A line as it is typed, then what is offered: the whole word, or with bash and zsh what comes behind its last '='.
cases_zerod() {
    cat <<'END'
zerod va|validate
zerod --jo|--job
zerod ckpt |ls show verify
zerod ckpt v|verify
zerod plan --wor|--world
zerod validate --format |json text
zerod validate --format=j|json
zerod --job j|job.toml
zerod ckpt show j|job.toml
zerod export -o o|out
zerod --set optim.lr_sch|optim.lr_scheduler_type=
zerod completions |bash fish zsh
zerod plan --machine h|h100 h200 here
zerod init quick|quickstart
END
}

cases_zerodctl() {
    cat <<'END'
zerodctl sta|status
zerodctl -j fi|first
zerodctl --job=s|second
zerodctl -j first pau|pause
zerodctl stop --n|--no-wait --now
zerodctl ls -o |json table
zerodctl --dir o|out
END
}

# check SHELL PROGRAM COMMAND...
check() {
    shell=$1 program=$2
    shift 2
    if ! command -v "$shell" >/dev/null; then
        skip "$program under $shell" "there is no $shell"
        return
    fi
    sed "s/NAME/$program/g" "daemon/cli/complete.$shell" >"$work/script" || { tell 1 "$program under $shell"; return; }
    "cases_$program" >"$work/cases"
    # The lines as arguments, in the folder where the files are.
    set -- "$@" "$here/complete.$shell" "$work/script" "$program"
    while IFS='|' read -r line _; do set -- "$@" "$line"; done <"$work/cases"
    (cd "$work/here" && timeout 60 "$@") >"$work/offered" 2>&1
    [ ! -e "$work/here/ran" ]
    tell $? "  no name of a socket is run by $shell"
    rm -f "$work/here/ran"
    cut -d '|' -f 2 "$work/cases" >"$work/expected"
    # In any order, without a folder's slash, and without what is typed already.
    while read -r words; do
        for word in $words; do
            case $word in
                *=) echo "${word#--*=}" ;;
                *) echo "${word##*=}" ;;
            esac
        done | sed 's,/$,,' | LC_ALL=C sort -u | paste -s -d ' ' -
    done <"$work/offered" >"$work/sorted"
    diff -u "$work/expected" "$work/sorted" >"$work/diff"
    tell $? "$program under $shell"
    sed 's/^/# /' "$work/diff"
}

here=$(cd "$here" && pwd)
for program in zerod zerodctl; do
    check bash $program bash --norc
    check zsh $program zsh -f
    check fish $program fish --no-config
done

# A folder of jobs that another user made, or a link to one: nothing of it is offered.
foreign() { # NAME
    for shell in bash zsh fish; do
        command -v "$shell" >/dev/null || { skip "$1 ($shell)" "there is no $shell"; continue; }
        sed s/NAME/zerodctl/g "daemon/cli/complete.$shell" >"$work/script"
        case $shell in
        bash) set -- "$1" bash --norc ;;
        zsh) set -- "$1" zsh -f ;;
        fish) set -- "$1" fish --no-config ;;
        esac
        name=$1
        shift
        offered=$(cd "$work/here" && timeout 60 "$@" "$here/complete.$shell" "$work/script" zerodctl 'zerodctl -j fi' 2>&1)
        [ -z "$offered" ]
        tell $? "$name ($shell)"
        set -- "$name"
    done
}
mv "$work/zerod" "$work/real"
ln -s real "$work/zerod"
foreign "a folder that is a link is passed over"
rm "$work/zerod"
mv "$work/real" "$work/zerod"
if [ "$(id -u)" = 0 ] && chown 65534 "$work/zerod" 2>/dev/null; then
    foreign "another user's folder is passed over"
else
    skip "another user's folder is passed over" "not root: there is no other user"
fi
tests_end
