#!/bin/sh
# Breaks a run at random and starts it again: tests/support/endure.py says how. By hand:
#   tests/endure.sh --trials 1000 --seed 7 --long        the build in build/; --build DIR names another
exec python3 -B "$(dirname "$0")/support/endure.py" "$@"
