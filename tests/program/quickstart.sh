#!/usr/bin/env bash
# The quickstart's job begins calmly: behind the first steps no norm of the gradients stands out. Prints TAP.
#   quickstart.sh ZEROD SOURCE        where out/kjv.txt is there, or can be made from the Debian package bible-kjv
zerod=$(realpath "$1") source=$(realpath "$2")
. "$source/tests/support/tap.sh"
scratch_folder
cd "$work" || exit 99
mkdir out
if [ -s "$source/out/kjv.txt" ]; then
    cp "$source/out/kjv.txt" out
elif PATH=$PATH:/usr/games command -v bible >/dev/null; then
    # as deploy/quickstart.sh makes it
    eval "$(sed -n '/ bible -f /,/out\/kjv.txt$/p' "$source/deploy/quickstart.sh")"
else
    echo '1..0 # SKIP neither out/kjv.txt nor bible-kjv is here'
    exit 0
fi
# The rate is highest behind the warm-up, so some steps more than that.
steps=$(sed -n 's/^warmup_steps = \([0-9]*\).*/\1/p' "$source/deploy/recipes/quickstart.toml")
ok "the job's first $((steps + 15)) steps" timeout 900 "$zerod" --job "$source/deploy/recipes/quickstart.toml" --stop-after $((steps + 15)) \
    --set eval.eval_strategy=no --set sample.steps=100000 --set checkpoint.save_strategy=no
calm() {
    python3 -I - out/quickstart/metrics.jsonl <<'END'
import json, sys
norms = [(row['grad_norm'], row['step']) for row in map(json.loads, open(sys.argv[1])) if row['step'] > 10 and 'grad_norm' in row]
highest = max(norms)
print('%d steps, the highest norm is %.3g at step %d' % (len(norms), *highest))
sys.exit(len(norms) < 20 or highest[0] > 10)
END
}
ok "no norm of the gradients stands out" calm
tests_end
