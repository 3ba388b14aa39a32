#!/usr/bin/env python3
"""What FP8 matmuls cost in loss: a llama of 10.7 million parameters over bytes, from scratch and fine-tuned, in bf16 and both modes of FP8.

    python3 bench/fp8_loss.py ZEROD TEXT [--only scratch,tune] [--modes ..] [--seeds 1,2,3] [--set device.backend=cuda ..]
        [--steps N] [--out out/fp8_loss] [--picture docs/measured/fp8.svg]

Nothing but Python's library is needed.

    scratch   500 steps of 16 x 128 tokens of TEXT; own: of the project's own docs and headers
    tune      150 steps of as many of the docs and headers, from the weights that scratch ended with in bf16

A mode changes nothing but train.fp8: weights, samples and their order are those of bf16's run with the seed. Compared is the mean
training loss of the last 50 steps. Runs that ended are not repeated. The table goes to stdout and OUT/table.md."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

MODES = {"bf16": "none", "tensorwise": "tensorwise", "blockwise": "blockwise"}
COLORS = {"tensorwise": "#d1242f", "blockwise": "#1f6feb"}
STEPS = {"scratch": 500, "tune": 150}
LAST = 50

JOB = """schema = 1
[model]
{path}
{config}
[data]
cutoff_len = 128
[[data.train]]
path = "{text}"
[train]
max_steps = {steps}
global_batch_size = 16
per_device_train_batch_size = 16
gradient_checkpointing = "none"
dtype = "bf16"
fp8 = "{fp8}"
[optim]
learning_rate = {rate}
lr_scheduler_type = "linear"
warmup_steps = 0.1
[eval]
eval_strategy = "no"
[sample]
steps = 0
[checkpoint]
save_strategy = "no"
export = "{export}"
[log]
logging_steps = 100
[control]
socket = "none"
"""

CONFIG = """[model.config]
model_type = "llama"
vocab_size = 257
hidden_size = 384
intermediate_size = 1024
num_hidden_layers = 6
num_attention_heads = 6
num_key_value_heads = 6
max_position_embeddings = 256
rope_theta = 10000.0
tie_word_embeddings = true
"""


def losses_of(folder, steps):
    """None: the run has not ended."""
    try:
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    except OSError:
        return None
    losses = [row["loss"] for row in rows if "loss" in row]
    return losses if len(losses) == steps else None


def run(args, kind, mode, seed, text):
    folder = args.out / f"{kind}-{mode}-{seed}"
    found = losses_of(folder, STEPS[kind])
    if found:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    base = args.out / f"scratch-bf16-{seed}" / "hf"
    tunes = kind == "tune"
    job = JOB.format(
        path=f'path = "{base}"\ntokenizer = "bytes"' if tunes else "", config="" if tunes else CONFIG, text=text, steps=STEPS[kind],
        fp8=MODES[mode], rate=2e-4 if tunes else 1e-3, export="hf" if kind == "scratch" and mode == "bf16" else "none")
    (folder / "job.toml").write_text(job)
    sets = [f"job.output_dir={folder}", f"job.seed={seed}", f"job.data_seed={seed}", *args.set]
    command = [args.zerod, "--job", str(folder / "job.toml"), *(word for s in sets for word in ("--set", s))]
    with open(folder / "log", "w") as log:
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=True)
    return losses_of(folder, STEPS[kind])


def own_text(out):
    """The project's docs and headers, one after the other."""
    path = out / "project.txt"
    root = pathlib.Path(__file__).resolve().parents[1]
    files = [*sorted(root.glob("docs/*.md")), *sorted(root.glob("*/**/*.h"))]
    files = [f for f in files if not f.relative_to(root).parts[0].startswith(("build", "out", "."))]
    path.write_bytes(b"\n\n".join(f.read_bytes() for f in files))
    return path


def end_of(losses):
    return statistics.fmean(losses[-LAST:])


def table(runs):
    out = [f"| training | mode | mean of the last {LAST} steps, by seed | against bf16, by seed | mean |", "|---|---|---|---|---|"]
    for kind in STEPS:
        for mode in MODES:
            mine = {seed: losses for (k, m, seed), losses in runs.items() if (k, m) == (kind, mode)}
            if not mine:
                continue
            apart = [100 * (end_of(losses) / end_of(runs[kind, "bf16", seed]) - 1)
                     for seed, losses in mine.items() if (kind, "bf16", seed) in runs]
            out.append(
                f"| {kind} | {mode} | {', '.join(f'{end_of(losses):.4f}' for losses in mine.values())} | "
                + (" | " if mode == "bf16" or not apart else
                   f"{', '.join(f'{a:+.2f} %' for a in apart)} | {statistics.fmean(apart):+.2f} %") + " |")
    return "\n".join(out) + "\n"


def smooth(values, weight=0.9):
    out, mean = [], 0.0
    for i, value in enumerate(values):
        mean = weight * mean + (1 - weight) * value
        out.append(mean / (1 - weight ** (i + 1)))
    return out


def picture(runs):
    """By how much the smoothed loss differs from bf16's on the same batches, per cent."""
    wide, high, left, top, most = 420, 240, 50, 40, 2.0
    parts = []
    for p, kind in enumerate(kind for kind in STEPS if any(k == kind for k, _, _ in runs)):
        x0 = left + p * (wide + 50)
        parts.append(f'<text x="{x0}" y="{top - 14}" font-weight="bold">{kind}: loss against bf16, % (smoothed)</text>')
        for tick in (-2, -1, -0.5, 0, 0.5, 1, 2):
            y = top + high * (1 - (tick + most) / (2 * most))
            color = "#8888" if abs(tick) != 0.5 else "#1a7f3799"
            parts.append(f'<path d="M{x0},{y:.1f} h{wide}" stroke="{color}"/>')
            parts.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:+g}</text>')
        for mode, color in COLORS.items():
            for (k, m, seed), losses in runs.items():
                if (k, m) != (kind, mode) or (kind, "bf16", seed) not in runs:
                    continue
                pairs = zip(smooth(losses), smooth(runs[kind, "bf16", seed]))
                points = []
                for i, (a, b) in enumerate(pairs):
                    share = min(max((100 * (a / b - 1) + most) / (2 * most), 0), 1)
                    points.append(f"{x0 + wide * i / len(losses):.1f},{top + high * (1 - share):.1f}")
                parts.append(f'<path d="M{" L".join(points[::3])}" stroke="{color}" fill="none"/>')
        for step in (0, STEPS[kind] // 2, STEPS[kind]):
            parts.append(f'<text x="{x0 + wide * step / STEPS[kind]:.1f}" y="{top + high + 18}" text-anchor="middle">{step}</text>')
    for i, (mode, color) in enumerate(COLORS.items()):
        parts.append(f'<text x="{left + 100 * i}" y="{top + high + 40}" fill="{color}">{mode}</text>')
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 330" font-family="sans-serif" font-size="12">'
            '<rect width="100%" height="100%" fill="white"/>' + "\n".join(parts) + "</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zerod")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=STEPS["scratch"], help="of scratch")
    parser.add_argument("--only", default="scratch,tune")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/fp8_loss"))
    parser.add_argument("--picture", type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    STEPS["scratch"] = args.steps
    own = own_text(args.out)
    text = {"scratch": own if str(args.text) == "own" else args.text, "tune": own}
    runs = {}
    for seed in map(int, args.seeds.split(",")):
        for kind in args.only.split(","):
            for mode in args.modes.split(","):
                losses = run(args, kind, mode, seed, text[kind])
                if not losses:
                    sys.exit(f"{kind}-{mode}-{seed} did not end: see {args.out}/{kind}-{mode}-{seed}/log")
                runs[kind, mode, seed] = losses
                print(f"{kind} {mode} seed {seed}: {end_of(losses):.4f}", file=sys.stderr, flush=True)
    rows = table(runs)
    (args.out / "table.md").write_text(rows)
    print(rows, end="")
    if args.picture:
        args.picture.write_text(picture(runs))


if __name__ == "__main__":
    main()
