#!/bin/sh
# What the shells offer behind TAB, asked of the shells themselves; one that is not installed is skipped.
#   completions.sh ZEROD_DOCS        prints TAP; run from the repository's root
docs=$1
here=$(dirname "$0")
. "$here/../support/tap.sh"
scratch_folder
mkdir -p "$work/zerod" "$work/here/out"
: >"$work/here/job.toml"
for job in first second; do : >"$work/zerod/$job.sock"; done

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
zerod --set optim.lr_scheduler_type=co|constant cosine
zerod plan --set=zero.overlap_comm=|false true
zerod completions |bash fish zsh
END
}

cases_zerodctl() {
    cat <<'END'
zerodctl sta|status
zerodctl -j fi|first
zerodctl --job=s|second
zerodctl -j first pau|pause
zerodctl stop --n|--no-wait --now
zerodctl ls -o |csv json table
zerodctl set learning|learning_rate=
zerodctl plot train/lo|train/loss train/loss_scale
zerodctl config optim.learning|optim.learning_rate
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
    "$docs" completions "$shell" "$program" >"$work/script" || { tell 1 "$program under $shell"; return; }
    "cases_$program" >"$work/cases"
    # The lines as arguments, in the folder where the files are.
    set -- "$@" "$here/complete.$shell" "$work/script" "$program"
    while IFS='|' read -r line _; do set -- "$@" "$line"; done <"$work/cases"
    (cd "$work/here" && timeout 60 "$@") >"$work/offered" 2>&1
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
docs=$(cd "$(dirname "$docs")" && pwd)/$(basename "$docs")
for program in zerod zerodctl; do
    check bash $program bash --norc
    check zsh $program zsh -f
    check fish $program fish --no-config
done
tests_end
