#!/bin/sh
# The man pages: nothing for groff or mandoc to complain about, every option of --help in them.
#   man.sh PAGES TABLES ZEROD...        prints TAP
pages=$1 tables=$2
shift 2
. "$(dirname "$0")/../support/tap.sh"
scratch_folder
for page in job.toml $(for program; do basename "$program"; done); do
    "$pages" "$tables" man "$page" >"$work/$page" || echo "pages.py man $page: $?" >"$work/said"
    for formatter in "groff -man -ww -Tutf8 -z" "mandoc -T lint -W warning"; do
        if ! command -v "${formatter%% *}" >/dev/null; then
            skip "$page for ${formatter%% *}" "it is not installed"
            continue
        fi
        LC_ALL=C.UTF-8 $formatter "$work/$page" >"$work/said" 2>&1
        [ -s "$work/$page" ] && ! [ -s "$work/said" ]; code=$?
        [ $code -eq 0 ] || sed 's/^/# /' "$work/said"
        tell $code "$page for ${formatter%% *}"
    done
done
for program; do
    page=$(basename "$program")
    # Lines of --help that begin with a command, then two blanks or more and what it does.
    "$program" --help | sed -n 's/^  \([a-z]\+\)\( [a-z]\+\)\?  .*/\1\2/p' | grep -v "^$page " | sort -u >"$work/commands"
    missing=$(while read -r command; do
        grep -q "^.fB$command\( \|.fR\)" "$work/$page" || echo "# $command"
    done <"$work/commands")
    [ -s "$work/commands" ] && [ -z "$missing" ]; code=$?
    echo "$missing" | grep . ; tell $code "$page(1) has every command"
done
tests_end
