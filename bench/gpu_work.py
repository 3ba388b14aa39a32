"""Runs of zerod and of its peers for bench/gpu_rows.py: token files, jobs, what a run says, and the time that is left."""

import json
import os
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get("ZEROD_PEER_PYTHON", sys.executable)
BLOCK = 1 << 18
# zerod's libraries are not the peers': see bench/gpu.sh
# Sockets in a folder of its own: somebody else's job of the same name is none of ours.
SOCKETS = tempfile.TemporaryDirectory(prefix="zerod-bench-")
OURS = dict(os.environ, LD_LIBRARY_PATH=os.environ.get("ZEROD_LIBRARIES", os.environ.get("LD_LIBRARY_PATH", "")),
            XDG_RUNTIME_DIR=SOCKETS.name)


class Failed(Exception):
    """Ours did not give its figure; the text says why."""


def has_no_gpu(text):
    """Whether zerod said that no GPU, driver or cuBLASLt can be used: then nothing would run here (deploy/gpu-folder.sh has it too)."""
    return re.search(r"error\[(E1201|E1202|E1203|E1220)\]", text) is not None


class Clock:
    """The time of a row: no program is started that would not be done in it."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return max(1.0, self.end - time.monotonic())


class Memory:
    """The most that the driver reports as used while this is open, less what was in use before; None without nvidia-smi. Beside it the
    clock and the power of each look."""

    def __enter__(self):
        self.stop, self.most, self.looks = threading.Event(), None, []
        self.before = (self.look() or [None])[0]
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    @staticmethod
    def look():
        """Bytes in use, MHz, watts; None where there is no such GPU."""
        if not shutil.which("nvidia-smi"):
            return None
        query = "--query-gpu=memory.used,clocks.sm,power.draw"
        said = subprocess.run(["nvidia-smi", query, "--format=csv,noheader,nounits"], capture_output=True, text=True)
        try:
            used, clock, power = said.stdout.splitlines()[0].split(", ")
            return int(used) << 20, float(clock), float(power)
        except (IndexError, ValueError):
            return None

    def watch(self):
        while self.before is not None and not self.stop.wait(0.5):
            look = self.look()
            if look:
                self.most = max(self.most or 0, look[0] - self.before)
                self.looks.append(look[1:])

    def busy(self):
        """Clock and power in the median of the looks at which it drew at least half of its most."""
        most = max((power for _, power in self.looks), default=0)
        busy = [look for look in self.looks if look[1] >= most / 2]
        return {"mhz": statistics.median(c for c, _ in busy), "watts": statistics.median(p for _, p in busy)} if busy else None


def end_of_text(vocabulary):
    """The last id stands for it: no other token is that."""
    return vocabulary - 1


def write_tokens(path, vocabulary, count, documents=0):
    """A token file in llm.c's form (magic numbers of GPT-2 and Llama 3), by the size of the vocabulary: the same random block
    over and over, to its end. documents: tokens of a document in the mean, up to and with its end-of-text; the ends lie anywhere."""
    rng = random.Random(1)
    wide = vocabulary > 65536
    ids = rng.choices(range(end_of_text(vocabulary)), k=BLOCK)
    for at in rng.sample(range(BLOCK), BLOCK // documents) if documents else []:
        ids[at] = end_of_text(vocabulary)
    block = struct.pack(f"<{BLOCK}{'I' if wide else 'H'}", *ids)
    bytes_left = count * (4 if wide else 2)
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240801 if wide else 20240520, 7 if wide else 1, count, *([0] * 253)))
        while bytes_left > 0:
            file.write(block[:bytes_left])
            bytes_left -= len(block)


def write_job(folder, row, tokens, name="job.toml"):
    """row: config, T, B, global_batch, documents. The path of a job of random weights that writes nothing large."""
    config = dict(row.config, eos_token_id=end_of_text(row.config["vocab_size"])) if row.documents else row.config
    lines = ["schema = 1", "[job]", 'name = "bench"', "[model.config]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in config.items()]
    lines += ["[data]", f"cutoff_len = {row.T}", "shuffle = false", f"cache_dir = {json.dumps(str(folder / 'cache'))}", "[[data.train]]",
              f"path = {json.dumps(str(tokens))}", 'format = "llmc"']
    lines += ["[train]", 'dtype = "bf16"', f"per_device_train_batch_size = {row.B}", f"global_batch_size = {row.global_batch}",
              "[optim]", "learning_rate = 1e-4", "max_grad_norm = 1.0", "[checkpoint]", 'save_strategy = "no"', 'export = "none"',
              "[report]", "html = false"]
    job = folder / name
    job.write_text("\n".join(lines) + "\n")
    return job


def tail(text, lines=12):
    return "\n".join(text.strip().splitlines()[-lines:])


def device_bytes(plan, said):
    """Planned and used bytes of the device of rank 0, the driver's share included; used is None where the run did not tell."""
    device = next(a for a in plan["ranks"][0]["arenas"] if a["name"] == "device")
    planned = device["planned_bytes"] + plan.get("context_bytes", 0)
    told = re.findall(r"holds (\d+) MiB of .*where \d+ MiB were planned", said)  # once the memory is taken, and at the end
    used = int(told[-1]) << 20 if told else None
    return {"planned": planned, "used": used, "arena": device["planned_bytes"], "context_planned": plan.get("context_bytes"),
            "difference_percent": used and 100 * (planned - used) / used}


def beside_plan(plan, rows, counted):
    """Medians of what a step took by phase and of what nothing hid, seconds, and bytes moved to and from the host, each beside the plan's; and
    seconds from one step to the next, where samples are made."""
    predicted = plan.get("predicted", {})
    middle = lambda of: {name: statistics.median(of(r)[name] for r in counted) for name, value in of(counted[0]).items() if value is not None}
    result = {"phase_seconds": middle(lambda r: r["phase_seconds"]), "exposed_seconds": middle(lambda r: r["exposed_seconds"]),
              "planned": {key: predicted.get(key) for key in ("step_seconds", "phases", "exposed", "machine")}}
    if "offload" in counted[0]:
        result["offload_bytes"] = middle(lambda r: {way: r["offload"][way + "_bytes"] for way in ("down", "up")})
        result["planned"]["offload_bytes"] = plan.get("offload_bytes_per_step")
    if len(rows) > 1:
        result["between_seconds"] = statistics.median(b["time"] - a["time"] - b["step_seconds"] for a, b in zip(rows, rows[1:]))
    return result


def share_of_peak(out, rate):
    """TFLOP/s of the model at `rate` tokens a second, and as a share of the GPU's dense peak in bf16; None where zerod knows no peak."""
    status = json.loads((out / "status.json").read_text())
    scale = rate / status["tokens_per_second"] if status.get("tokens_per_second") else 0
    share = lambda key, unit: status.get(key) and status[key] * scale / unit
    return {"model_tflops": share("model_flops_per_second", 1e12), "mfu": share("mfu", 1)}


def zerod(arguments, clock):
    try:
        return subprocess.run(["zerod", *arguments], capture_output=True, text=True, timeout=clock.left(), env=OURS)
    except subprocess.TimeoutExpired as error:
        raise Failed("zerod: no time left") from error
    except OSError as error:
        raise Failed(f"zerod: {error}") from error


def arguments_of(job, settings):
    words = ["--job", str(job), "--set", "device.backend=cuda"]
    for setting in settings:
        words += ["--set", setting]
    return words


def run_ours(job, settings, steps, warmup, clock):
    """The figures of a run: the median of its steps after the first `warmup`. Failed with the end of what it said."""
    out = job.parent / f"out-{time.monotonic_ns()}"
    with Memory() as memory:
        said = zerod(arguments_of(job, [*settings, f"job.output_dir={out}", f"train.max_steps={steps}"]), clock)
    text = said.stdout + said.stderr
    if said.returncode:
        raise Failed(f"zerod ended with {said.returncode}:\n{tail(text)}")
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rows = [r for r in rows if "tokens_per_second" in r]
    plan = json.loads((out / "plan.json").read_text())
    counted = rows[warmup:] or rows
    result = {"tokens_per_second": statistics.median(r["tokens_per_second"] for r in counted),
              "step_seconds": statistics.median(r["step_seconds"] for r in counted), "loss": rows[-1]["loss"],
              "bytes": device_bytes(plan, text), "layout": plan["layout"],
              "said": [line for line in text.splitlines() if "to the first step" in line or line.startswith("warning")]}
    result["bytes"]["driver_peak"] = memory.most
    result.update(gpu=memory.busy(), **beside_plan(plan, rows, counted), **share_of_peak(out, result["tokens_per_second"]))
    if result["bytes"]["used"] is None:
        result["bytes"]["used"] = memory.most
    shutil.rmtree(out, ignore_errors=True)
    return result


def plan_of(job, settings, clock):
    """What `zerod plan` says of a job: its JSON, or Failed."""
    said = zerod(["plan", *arguments_of(job, settings), "--world", "1", "--format", "json"], clock)
    if said.returncode:
        # what stdout holds is the same refusal as JSON
        raise Failed(f"zerod plan ended with {said.returncode}:\n{tail(said.stderr or said.stdout)}")
    return json.loads(said.stdout)


def mean_document(row, job, clock):
    """Tokens of a document in the mean, as zerod cuts the samples of a job."""
    said = zerod(["data", "inspect", "--job", str(job), "--count", str(BLOCK // row.T), "--format", "json"], clock)
    if said.returncode:
        raise Failed(f"zerod data inspect ended with {said.returncode}:\n{tail(said.stderr or said.stdout)}")
    samples = json.loads(said.stdout)["shown"]
    begun = sum(piece.get("begins_document", False) for sample in samples for piece in sample["pieces"])
    return sum(sample["tokens"] for sample in samples) / max(1, begun)


def peer_once(script, words, clock):
    """The object that a peer says last, or why there is none: {"missing": ..}, {"failed": ..}."""
    try:
        said = subprocess.run([PYTHON, str(HERE / "peers" / script), *words], capture_output=True, text=True, timeout=clock.left())
    except subprocess.TimeoutExpired:
        return {"failed": "no time left"}
    except FileNotFoundError:
        return {"missing": PYTHON}
    lines = [line for line in said.stdout.splitlines() if line.startswith("{")]
    if said.returncode or not lines:
        return {"failed": f"ended with {said.returncode}", "said": tail(said.stderr)}
    return json.loads(lines[-1])


def run_peer(row, arguments, steps, warmup, clock):
    """The peer's figures, or why there are none: {"missing": ..}, {"failed": ..}. Out of memory it tries half the batch."""
    batch = row.peer_batch or row.B
    while True:
        words = ["--config", json.dumps(row.config), "--seq", str(row.T), "--batch", str(batch), "--tokens", str(row.global_batch * row.T),
                 "--steps", str(steps), "--warmup", str(warmup), *arguments]
        result = peer_once("gpu_train.py", words, clock)
        if result.get("failed") != "out of memory" or batch == 1:
            return result
        batch //= 2


def median(values):
    values = [v for v in values if v]
    return statistics.median(values) if values else None
