#!/usr/bin/env python3
"""From a model's folder and a folder of data to a trained model: `zerod init` gives a job that validates, trains and exports with
no edit, of the ids and masks that transformers has (tests/reference/make_journey.py).

    journey.py ZEROD SOURCE some|all     prints TAP: a family for each kind of data, or all with all"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile

import journey_models


def digest(rows):
    """Of (ids, mask) of each conversation, in any order. Nothing stands before the first token: it is never trained."""
    rows = sorted((list(map(int, ids)), [0, *map(int, mask[1:])]) for ids, mask in rows)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


class Journey:
    def __init__(self, zerod, source, folder):
        self.zerod, self.source, self.folder = zerod, source, folder

    def call(self, *args):
        done = subprocess.run([self.zerod, *args], cwd=self.folder, capture_output=True, text=True, errors="replace", timeout=300)
        if done.returncode or "NOT READY" in done.stdout + done.stderr:
            raise AssertionError(f"{' '.join(args)}: {done.returncode}\n{done.stdout[-800:]}{done.stderr[-800:]}")
        return done.stdout

    def ids(self):
        shown = json.loads(self.call("data", "inspect", "--job", "job.toml", "--format", "json", "--ids", "--count", "1000",
                                     "--set", "data.packing=false", "--set", "data.shuffle=false", "--set", "data.cutoff_len=256"))["shown"]
        return digest(([i for p in s["pieces"] for i in p["ids"]], [p["trained"] for p in s["pieces"] for _ in p["ids"]]) for s in shown)

    def same_file(self, name):
        return [open(os.path.join(self.folder, where, name), "rb").read() for where in ("model", "run/hf")]

    def go(self, family, kind):
        journey_models.make(family, self.source, os.path.join(self.folder, "model"))
        data = os.path.join(self.source, "tests/fixtures/journey", kind)
        self.call("init", "--model", "model", "--data", data, "-o", "job.toml")
        self.call("validate", "job.toml")
        assert self.ids() == json.load(open(os.path.join(data, "../ids.json")))[family][kind], "other ids or masks than transformers'"
        self.call("--job", "job.toml", "--max-steps", "2", "--set", "job.output_dir=run")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            brought, exported = self.same_file(name)
            assert brought == exported, name
        sizes = [json.loads(c) for c in self.same_file("config.json")]
        assert sizes[0]["model_type"] == sizes[1]["model_type"]
        self.call("generate", "--model", "run/hf", "--prompt", "the", "--max-new-tokens", "1")


def main():
    zerod, source = map(os.path.abspath, sys.argv[1:3])
    kinds = journey_models.KINDS
    pairs = list(zip(("gemma3", "phi3", "qwen2", "ministral3"), kinds)) if sys.argv[3] == "some" else \
        [(family, kind) for family in journey_models.FAMILIES for kind in kinds]
    print(f"1..{len(pairs)}")
    for n, (family, kind) in enumerate(pairs, 1):
        with tempfile.TemporaryDirectory() as folder:
            os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", XDG_RUNTIME_DIR=folder, XDG_CACHE_HOME=folder)
            try:
                Journey(zerod, source, folder).go(family, kind)
                print(f"ok {n} - {family}, {kind}", flush=True)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                print(f"not ok {n} - {family}, {kind}\n# " + str(error).replace("\n", "\n# "), flush=True)


if __name__ == "__main__":
    main()
