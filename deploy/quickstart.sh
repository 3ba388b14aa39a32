#!/usr/bin/env bash
# From a clean clone to a trained model: install what is missing, build, train a small model from scratch on two ranks,
# stop half-way, resume on one rank, export, sample. About five minutes on two cores; everything made is in build/ and out/.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
begin=$SECONDS
say() { printf '\n== %s\n' "$*" >&2; }

say "packages: ./deploy/install.sh build run demo (nothing to do where all are here)"
./deploy/install.sh build run demo
say "building zerod and zerodctl (build/daemon/zerod, build/daemon/ctl/zerodctl)"
# A toolkit where there is no GPU would only cost minutes of compiling.
cuda=()
if [[ ! -e /dev/nvidiactl && ! -e /dev/dxg ]]; then cuda=(-Dcuda=disabled); fi
./deploy/build.sh build --target daemon/zerod --target daemon/ctl/zerodctl "${cuda[@]}"
zerod=build/daemon/zerod
trained=$SECONDS

# mpirun refuses root, and more ranks than cores, unless told otherwise. A rank bound to one core would also compute on one.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Two ranks of one host need no network; Open MPI 5 complains at length where it finds none that it likes.
export OMPI_MCA_btl=^tcp
mpirun=(mpirun --oversubscribe --bind-to none)
# An earlier quickstart's model; nothing else is under this name.
rm -rf out/quickstart
mkdir -p out

say "the text: out/kjv.txt, the King James Bible from the Debian package bible-kjv, without verse numbers"
PATH=$PATH:/usr/games bible -f gen1:1-rev22:21 |
    awk '{ verse = $1; sub(/^[^ ]+ /, ""); sub(/^.*:/, "", verse); if (verse == 1 && NR > 1) print ""; print }' >out/kjv.txt
printf '   %d bytes; it begins: %s\n' "$(wc -c <out/kjv.txt)" "$(head -n 1 out/kjv.txt)" >&2

job=deploy/recipes/quickstart.toml
say "what two ranks will hold and send: zerod plan --job $job --world 2"
"$zerod" plan --job "$job" --world 2

say "training, 2 ranks, ZeRO stage 3, the first half: mpirun -np 2 zerod --job $job --stop-after 160"
echo "   look into it from another terminal: build/daemon/ctl/zerodctl status, top, or web" >&2
"${mpirun[@]}" -np 2 "$zerod" --job "$job" --stop-after 160

say "the checkpoint of two ranks: zerod ckpt show out/quickstart/checkpoint-000160"
"$zerod" ckpt show out/quickstart/checkpoint-000160

say "the second half on one rank, from that checkpoint: zerod --job $job"
"$zerod" --job "$job"

say "a Hugging Face directory from the last checkpoint: zerod export out/quickstart/checkpoint-000320 -o out/quickstart/model"
"$zerod" export out/quickstart/checkpoint-000320 -o out/quickstart/model
ls out/quickstart/model >&2

for prompt in "In the beginning " "And the king said unto "; do
    say "zerod generate --model out/quickstart/model --prompt \"$prompt\" --max-new-tokens 200 --temperature 0.7 --top-p 0.9 --seed 1"
    printf '%s' "$prompt"
    "$zerod" generate --model out/quickstart/model --prompt "$prompt" --max-new-tokens 200 \
        --temperature 0.7 --top-p 0.9 --seed 1
done

say "done: $((SECONDS - trained)) s after the build, $((SECONDS - begin)) s in all"
cat >&2 <<'END'
   out/quickstart/report.html     the run as a page: open it in a browser
   out/quickstart/metrics.jsonl   a row for every step
   out/quickstart/hf              the model as the run exported it, for transformers or `zerod generate`
   deploy/recipes/                job files to start your own from; docs/job.md has every key
END
