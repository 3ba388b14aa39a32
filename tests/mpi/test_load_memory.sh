#!/usr/bin/env bash
# A base that is quantized as it is loaded is never held whole: what each rank had at most, from its start to its end, is
# within 60 MB of its plan. The stored model is larger than that.
source "$(dirname "$0")/lib.sh" "$1" "$2"
cp tests/mpi/load_memory.toml job.toml
run base 1
check "a model of 64 million parameters is made" test -s base/hf/model.safetensors
sed -i -e '/^\[model.config\]/,/^\[device\]/c [model]\npath = "base/hf"\n[device]' -e 's/^export = .*/export = "none"/' job.toml

# near RANKS: all of them are there and within the limit
near() {
    python3 -I - "$name/status.json" "$1" <<'END'
import json, os, sys
stored, limit = os.path.getsize("base/hf/model.safetensors"), 60e6
ranks = json.load(open(sys.argv[1]))["ranks"]
over = [rank["resident_peak"] - sum(memory["planned"] for key, memory in rank["memory"].items() if key != "disk") for rank in ranks]
print("MB beside the plan:", ", ".join(f"{bytes / 1e6:.1f}" for bytes in over), f"of {stored / 1e6:.0f} stored")
sys.exit(len(ranks) != int(sys.argv[2]) or not stored > 2 * limit or not all(0 < bytes < limit for bytes in over))
END
}
for case in "nf4 1 2" "nf4 3 2" "int8 3 2" "fp8 1 1"; do
    read -r format stage ranks <<<"$case"
    run "$format-$stage" "$ranks" --set zero.stage="$stage" --set lora.quantize_base="$format"
    check "$format, stage $stage, $ranks ranks: the run ends well" test "$code" -eq 0
    check "$format, stage $stage, $ranks ranks: at most 60 MB beside the plan" near "$ranks"
done
tests_end
