#!/usr/bin/env python3
"""Loss curves of out/quality as an SVG, and a Markdown table of where they end.

usage: draw.py FOLDER PICTURE        FOLDER holds NAME_SEED/metrics.jsonl
"""
import json
import math
import pathlib
import sys

DRAWN = ["adamw", "adamw_8bit", "paged_adamw_32bit", "paged_adamw_8bit"]
NAMES = DRAWN + ["adam_mini", "adam_mini_8bit", "lion", "lion_8bit"]
COLORS = ["#1f6feb", "#d1242f", "#8bbcff", "#f5a3a8"]
TWINS = {"paged_adamw_32bit": "adamw", "paged_adamw_8bit": "adamw_8bit"}
WARMUP = 0.1
WIDTH, HEIGHT, LEFT, TOP, GAP = 960, 620, 70, 40, 60


def read(path):
    losses, evals = [], []
    for line in open(path):
        row = json.loads(line)
        if "loss" in row:
            losses.append(row["loss"])
        if "eval_loss" in row:
            evals.append(row["eval_loss"])
    return losses, evals


def smooth(values, weight=0.9):
    """Exponential mean with its start corrected."""
    out, mean = [], 0.0
    for i, value in enumerate(values):
        mean = weight * mean + (1 - weight) * value
        out.append(mean / (1 - weight ** (i + 1)))
    return out


def path(points):
    return "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in points)


class Panel:
    """A set of axes over `steps` steps from `low` to `high`."""

    def __init__(self, top, height, steps, low, high, title):
        self.top, self.height, self.steps = top, height, steps
        self.low, self.high, self.title = low, high, title

    def at(self, step, value):
        x = LEFT + (WIDTH - LEFT - 20) * step / self.steps
        share = (value - self.low) / (self.high - self.low)
        return x, self.top + self.height * (1 - min(max(share, 0), 1))

    def axes(self, ticks, form):
        parts = [f'<text x="{LEFT}" y="{self.top - 10}" class="title">{self.title}</text>']
        for tick in ticks:
            x, y = self.at(0, tick)
            parts.append(f'<path class="grid" d="M{x:.1f},{y:.1f} H{WIDTH - 20}"/>')
            parts.append(f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" class="tick" text-anchor="end">{form % tick}</text>')
        for step in range(0, self.steps + 1, 100):
            x, y = self.at(step, self.low)
            parts.append(f'<text x="{x:.1f}" y="{y + 16:.1f}" class="tick" text-anchor="middle">{step}</text>')
        return parts


def draw(runs):
    steps = max(len(losses) for losses, _ in runs.values())
    seeds = sorted({seed for name, seed in runs if name in DRAWN})
    upper = Panel(TOP, 330, steps, 1.0, 3.0, "training loss, smoothed (thin: paged, on top of its own)")
    lower = Panel(TOP + 330 + GAP, HEIGHT - TOP - 330 - GAP - 40, steps, -2.0, 2.0,
                  "8-bit against 32-bit on the same batches, per cent of the loss, smoothed")
    parts = upper.axes([1.0, 1.5, 2.0, 2.5, 3.0], "%.1f") + lower.axes([-2, -1, 0, 1, 2], "%+d %%")
    for k, name in enumerate(DRAWN):
        for seed in seeds:
            if (name, seed) not in runs:
                continue
            points = [upper.at(i, v) for i, v in enumerate(smooth(runs[name, seed][0])) if v <= upper.high]
            width = 0.8 if name.startswith("paged") else 1.8
            parts.append(f'<path d="{path(points[::2])}" stroke="{COLORS[k]}" stroke-width="{width}" fill="none"/>')
        x = LEFT + 12 + 210 * k
        parts.append(f'<path d="M{x + 180},{TOP + 8} h24" stroke="{COLORS[k]}" stroke-width="3"/>')
        parts.append(f'<text x="{x + 176}" y="{TOP + 12}" class="tick" text-anchor="end">{name}</text>')
    for seed in seeds:
        if ("adamw", seed) in runs and ("adamw_8bit", seed) in runs:
            a, b = smooth(runs["adamw", seed][0]), smooth(runs["adamw_8bit", seed][0])
            points = [lower.at(i, 100 * (y / x - 1)) for i, (x, y) in enumerate(zip(a, b))]
            parts.append(f'<path d="{path(points[::2])}" stroke="#d1242f" stroke-width="1.2" fill="none"/>')
    style = ("text{font:12px sans-serif;fill:#57606a}.title{font-weight:bold}.grid{stroke:#8884;fill:none}")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">'
            f'<style>{style}</style><rect width="100%" height="100%" fill="white"/>' + "\n".join(parts) + "</svg>\n")


def table(runs):
    """`furthest` is of the smoothed training losses, step by step."""
    print("| optimizer | seeds | eval loss at the start | at the end | against adamw of the same seed | furthest away after warm-up |")
    print("|---|---|---|---|---|---|")
    for name in NAMES:
        mine = {seed: run for (n, seed), run in runs.items() if n == name}
        if not mine:
            continue
        ends = [evals[-1] for _, evals in mine.values()]
        starts = [evals[0] for _, evals in mine.values()]
        ratios, furthest = [], []
        for seed, (losses, evals) in mine.items():
            if ("adamw", seed) not in runs:
                continue
            other, other_evals = runs["adamw", seed]
            ratios.append(100 * (evals[-1] / other_evals[-1] - 1))
            first = math.ceil(WARMUP * len(losses))
            away = [abs(y / x - 1) for x, y in zip(smooth(other)[first:], smooth(losses)[first:])]
            furthest.append(100 * max(away))
        apart = ", ".join(f"{r:+.2f} %" for r in ratios)
        twin = TWINS.get(name)
        if twin:
            same = all(run == runs.get((twin, seed)) for seed, run in mine.items())
            apart += f"; every number is `{twin}`'s" if same else f"; NOT `{twin}`'s numbers"
        print(f"| `{name}` | {len(mine)} | {sum(starts) / len(starts):.3f} | {', '.join(f'{e:.4f}' for e in ends)} | "
              f"{apart} | {max(furthest, default=0):.2f} % |")


def main():
    folder, picture = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    runs = {}
    for file in sorted(folder.glob("*/metrics.jsonl")):
        name, _, seed = file.parent.name.rpartition("_")
        if name in NAMES:
            runs[name, int(seed)] = read(file)
    picture.write_text(draw(runs))
    table(runs)


if __name__ == "__main__":
    main()
