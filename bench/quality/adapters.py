#!/usr/bin/env python3
"""What adapters and a quantized base cost in quality: a base is pretrained, then fine-tuned whole, by LoRA and by QLoRA.

    python3 bench/quality/adapters.py ZEROD TEXT [--out out/quality-adapters] [--seeds 3] [--threads 1] [--jobs 1] [--scale 1]

Run from the repository's root, with out/kjv.txt as deploy/quickstart.sh makes it. The base is a llama of 10.7 million
parameters over bytes; it learns out/kjv.txt, and lines such as "17+5=22". Then it is fine-tuned

    text    on TEXT, but for its last tenth, whose loss is what counts. Before the first step the adapters change nothing:
            the loss then, against that of the base as it is, is the gap that quantizing opens
    sums    on "3859=" -> "3 11 16 25", the sums of digits as they are added up. 200 numbers that it never saw are asked
            for at the end, greedily, of the model as it is trained; what counts is the share of right last numbers

by each of full, lora, nf4, int8, fp8 (r = 16 on all linear modules of the layers) and each seed: of adapters, the order
of samples and the sums. The base is one. --scale is the share of the steps. Runs that ended are not repeated. At the end:
docs/adapters.svg, and the tables of docs/measured/adapters.md."""

import argparse
import concurrent.futures
import json
import pathlib
import random
import statistics
import subprocess
import sys

VARIANTS = ["full", "lora", "nf4", "int8", "fp8"]
COLORS = dict(zip(VARIANTS, ["#57606a", "#1f6feb", "#d1242f", "#bf8700", "#1a7f37"]))
ASKED = 200
STEPS = {"base": 300, "text": 60, "sums": 240}
TOKENS = 128   # of a sample

MODEL = """[model.config]
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


def running_sums(digits):
    return " ".join(str(sum(map(int, digits[:i + 1]))) for i in range(len(digits)))


def write_data(out, text):
    data = out / "data"
    data.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    with open(data / "additions.jsonl", "w") as f:
        for _ in range(60000):
            a, b = rng.randrange(37), rng.randrange(10)
            f.write(json.dumps({"text": f"{a}+{b}={a + b}"}) + "\n")
    numbers = [f"{i:04d}" for i in range(10000)]
    rng.shuffle(numbers)
    asked, rest = numbers[:ASKED], numbers[ASKED:]
    with open(data / "sums.jsonl", "w") as f:
        for digits in rest:
            f.write(json.dumps({"prompt": digits + "=", "completion": running_sums(digits)}) + "\n")
    with open(data / "asked.jsonl", "w") as f:
        for digits in asked:
            f.write(json.dumps({"prompt": digits + "=", "completion": running_sums(digits)}) + "\n")
    whole = pathlib.Path(text).read_bytes()
    cut = whole.rindex(b"\n", 0, len(whole) * 9 // 10) + 1
    (data / "train.txt").write_bytes(whole[:cut])
    (data / "held_out.txt").write_bytes(whole[cut:])
    return [digits + "=" for digits in asked]


def job_text(args, name, task, steps, model, data, extra):
    batch = 16 if task == "base" else 8
    return f"""schema = 1
[job]
name = "quality-{name}"
output_dir = "{args.out / name}"
[device]
backend = "cpu"
cpu_threads = {args.threads}
{model}
[data]
cutoff_len = {TOKENS}
{data}
[train]
max_steps = {steps}
global_batch_size = {batch}
per_device_train_batch_size = {batch}
gradient_checkpointing = "none"
dtype = "bf16"
[eval]
eval_steps = {steps}
per_device_eval_batch_size = 16
max_batches = 4
[checkpoint]
save_strategy = "no"
[log]
logging_steps = 20
{extra}
"""


def files(kind, *paths):
    return "".join(f'[[data.{kind}]]\npath = "{path}"\nweight = {weight}\n' for path, weight in paths)


def has_ended(folder):
    try:
        lines = (folder / "events.jsonl").read_text().splitlines()
    except OSError:
        return False
    return any(json.loads(line).get("state") == "done" for line in lines)


def train(args, name, text):
    folder = args.out / name
    if has_ended(folder):
        return
    path = args.out / (name + ".toml")
    path.write_text(text)
    print("==", name, file=sys.stderr, flush=True)
    subprocess.run([args.zerod, "--job", str(path), "--quiet", "--resume", "never"], check=True)


def pretrain(args):
    data = args.out / "data"
    steps = max(int(STEPS["base"] * args.scale), 2)
    sources = files("train", ("out/kjv.txt", 0.2), (data / "additions.jsonl", 1.0)) + files("eval", ("out/kjv.txt", 1.0))
    extra = f'export = "hf"\n[optim]\nlearning_rate = 1e-3\nwarmup_steps = 0.1\nlr_scheduler_type = "linear"\n[sample]\nsteps = 0'
    checkpoint, rest = extra.split("\n", 1)
    text = job_text(args, "base", "base", steps, MODEL, sources, rest)
    train(args, "base", text.replace('save_strategy = "no"', 'save_strategy = "no"\n' + checkpoint))


def fine_tune(args, task, variant, seed, prompts):
    data = args.out / "data"
    steps = max(int(STEPS[task] * args.scale), 2)
    if task == "text":
        sources = files("train", (data / "train.txt", 1.0)) + files("eval", (data / "held_out.txt", 1.0))
        extra = "[sample]\nsteps = 0\n"
    else:
        sources = files("train", (data / "sums.jsonl", 1.0)) + files("eval", (data / "asked.jsonl", 1.0))
        extra = f"[sample]\nsteps = {steps}\ntemperature = 0\nmax_new_tokens = 12\nprompts = {json.dumps(prompts)}\n"
    extra += f"[optim]\nlearning_rate = {5e-4 if variant == 'full' else 3e-3}\nwarmup_steps = 0.1\nlr_scheduler_type = \"linear\"\n"
    if variant != "full":
        extra += "[lora]\nenabled = true\nr = 16\nlora_alpha = 32\n"
        extra += f'quantize_base = "{variant}"\n' if variant != "lora" else ""
    name = f"{task}_{variant}_{seed}"
    text = job_text(args, name, task, steps, f'[model]\npath = "{args.out}/base/hf"\ntokenizer = "bytes"\n', sources, extra)
    text = text.replace('save_strategy = "no"', 'save_strategy = "no"\nexport = "none"')
    train(args, name, text.replace("[job]\n", f"[job]\nseed = {seed}\ndata_seed = {seed}\n"))


# --- what came of it -------------------------------------------------------------------------------------------------


def losses(folder):
    rows = map(json.loads, open(folder / "metrics.jsonl"))
    evals = [row["eval_loss"] for row in rows if "eval_loss" in row]
    return evals[0], evals[-1]


def share_right(folder):
    right = asked = 0
    for event in map(json.loads, open(folder / "events.jsonl")):
        if event.get("event") != "sample":
            continue
        asked += 1
        digits = event["prompt"].rstrip("=")
        words = event["text"].removeprefix(event["prompt"]).split()
        right += bool(words) and words[-1] == str(sum(map(int, digits)))
    return right / asked if asked else 0.0


def gather(args):
    found = {}
    for seed in range(1, args.seeds + 1):
        for variant in VARIANTS:
            text, sums = (args.out / f"{task}_{variant}_{seed}" for task in ("text", "sums"))
            if has_ended(text) and has_ended(sums):
                found[variant, seed] = (*losses(text), *losses(sums), share_right(sums))
    return found


def of(found, variant, place):
    return [values[place] for (name, _), values in sorted(found.items()) if name == variant]


def against_lora(found, variant, place):
    return [100 * (values[place] / found["lora", seed][place] - 1)
            for (name, seed), values in sorted(found.items()) if name == variant and ("lora", seed) in found]


def table(found):
    signed = lambda values: ", ".join(f"{value:+.2f} %" for value in values)
    print("| | seeds | loss before training | against the base as it is | held-out loss | against LoRA, same seed | sums right | against LoRA |")
    print("|---|---|---|---|---|---|---|---|")
    for variant in VARIANTS:
        ends, rights = of(found, variant, 1), of(found, variant, 4)
        if not ends:
            continue
        before = of(found, variant, 0)
        gap = against_lora(found, variant, 0)
        lora = statistics.mean(of(found, "lora", 4) or [0])
        share = 100 * (statistics.mean(rights) / lora - 1) if lora else 0
        print(f"| `{variant}` | {len(ends)} | {before[0]:.4f} | {gap[0]:+.2f} % | {', '.join(f'{e:.4f}' for e in ends)} | "
              f"{signed(against_lora(found, variant, 1))} | {', '.join(f'{100 * r:.1f} %' for r in rights)} | {share:+.1f} % |")


def text(x, y, words, anchor="start", kind="tick"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{words}</text>'


class Panel:
    """Axes for one column a variant, from `low` to `high`."""

    def __init__(self, left, low, high, title):
        self.left, self.low, self.high, self.title = left, low, high, title
        self.width, self.top, self.height = 360, 50, 240

    def y(self, value):
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.top + self.height * (1 - share)

    def x(self, variant, seed=2):
        return self.left + self.width * (VARIANTS.index(variant) + 0.5) / len(VARIANTS) + 9 * (seed - 2)

    def axes(self, ticks, form):
        parts = [text(self.left, self.top - 22, self.title, kind="title")]
        for tick in ticks:
            parts.append(f'<path class="grid" d="M{self.left},{self.y(tick):.1f} h{self.width}"/>')
            parts.append(text(self.left - 8, self.y(tick) + 4, form % tick, "end"))
        return parts + [text(self.x(v), self.top + self.height + 20, v, "middle") for v in VARIANTS]


def dot(x, y, variant, is_full):
    fill = COLORS[variant] if is_full else "white"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" stroke="{COLORS[variant]}" stroke-width="1.5"/>'


def draw(found):
    ends = {(v, s): 100 * (values[1] / found["lora", s][1] - 1) for (v, s), values in found.items() if ("lora", s) in found}
    gaps = {(v, s): 100 * (values[0] / found["lora", s][0] - 1) for (v, s), values in found.items() if ("lora", s) in found}
    reach = [*ends.values(), *gaps.values(), -1.0, 2.5]
    low, high = min(reach) // 1, -(-max(reach) // 1)
    left = Panel(70, low, high, "held-out loss against LoRA of the same seed; ring: before training")
    right = Panel(520, 0, 100, f"sums of digits that are right, per cent of {ASKED}")
    every = max(1, int(high - low) // 6)
    parts = left.axes([t for t in range(int(low), int(high) + 1) if t % every == 0], "%+d %%")
    parts += right.axes(range(0, 101, 20), "%d")
    parts.append(f'<path d="M{left.left},{left.y(2):.1f} h{left.width}" stroke="#d1242f" stroke-dasharray="4 4"/>')
    scores = of(found, "lora", 4)
    if scores:
        aim = 90 * statistics.mean(scores)
        parts.append(f'<path d="M{right.left},{right.y(aim):.1f} h{right.width}" stroke="#d1242f" stroke-dasharray="4 4"/>')
    for (variant, seed), value in sorted(ends.items()):
        if variant != "full":
            parts.append(dot(left.x(variant, seed), left.y(gaps[variant, seed]), variant, False))
        parts.append(dot(left.x(variant, seed), left.y(value), variant, True))
    for (variant, seed), values in sorted(found.items()):
        parts.append(dot(right.x(variant, seed), right.y(100 * values[4]), variant, True))
    style = "text{font:12px sans-serif;fill:#57606a}.title{font-weight:bold}.grid{stroke:#8884;fill:none}"
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 330">'
            f'<style>{style}</style><rect width="100%" height="100%" fill="white"/>' + "\n".join(parts) + "</svg>\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("zerod")
    parser.add_argument("text")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/quality-adapters"))
    parser.add_argument("--picture", type=pathlib.Path, default=pathlib.Path("docs/adapters.svg"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--only-draw", action="store_true")
    args = parser.parse_args()
    args.out = args.out.absolute()
    if not args.only_draw:
        prompts = write_data(args.out, args.text)
        pretrain(args)
        runs = [(task, variant, seed) for seed in range(1, args.seeds + 1) for task in ("text", "sums") for variant in VARIANTS]
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for done in [pool.submit(fine_tune, args, *run, prompts) for run in runs]:
                done.result()
    found = gather(args)
    args.picture.write_text(draw(found))
    table(found)


if __name__ == "__main__":
    main()
