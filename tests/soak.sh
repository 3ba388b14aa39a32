#!/bin/sh
# A long run of tiny steps, killed again and again: tests/support/soak.py says what is looked at. By hand:
#   tests/soak.sh --long         86,400 steps; --steps N as many as given
exec python3 -B "$(dirname "$0")/support/soak.py" "$@"
