#!/usr/bin/env python3
"""What a save costs training, as ratios within one run of this script:

    bench/checkpoint.py build/daemon/zerod                       one rank, 2 GB
    bench/checkpoint.py build/daemon/zerod --ranks 2 --gb 4
    bench/checkpoint.py build/daemon/zerod --offload             states on the host
    bench/checkpoint.py build/daemon/zerod --folder /mnt/disk    where the checkpoints go

It trains one job twice, saving in the background and synchronously, a core left to spare, and beside that copies as many bytes
as a rank's snapshot by memcpy (as many processes at once as there are ranks, from and to huge pages as theirs), and writes a
checkpoint's bytes with dd: with the flags of our files, which go past the page cache and are synced (oflag=direct conv=fsync,
bs=4M as our pieces), and through the page cache (conv=fsync).
Of saves in the middle of the run: that at the end is synchronous. Printed:

    stall/memcpy     what training stands still for a background save, by a copy of the snapshot       (1.2 at most)
    stall/save       .. by a synchronous save                                                          (0.05 at most, offloaded)
    first/memcpy     .. for the first save of a process
    step/step        steps that a write is under way during, by the others                             (1.1 at most)
    speed/dd         bytes of a checkpoint in a second of its write, by dd's with the same flags       (0.9 at least)
    speed/cached     .. by dd's through the page cache

dd writes three files, before the saves, between the runs and behind them, each beside the one before, as checkpoints lie; its
median counts. A single dd into blocks that were just freed, on pages that were just used, says little of a disk. On a machine
that others use too, only the ratios say anything, and of those a median of several --rounds."""

import argparse
import ctypes
import json
import mmap
import multiprocessing
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WIDTH, VOCABULARY, SAVES, COPIES = 1024, 8192, 3, 7
EVERY = {True: 10, False: 2}  # steps, of saves in the background (which would wait for the one before) and of others
DIRECT, CACHED = "oflag=direct conv=fsync", "conv=fsync"


def write_tokens(path, count):
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, count, *([0] * 253)))
        file.write(struct.pack(f"<{count}H", *((7 * i + i // 11) % VOCABULARY for i in range(count))))


def layers_of(bytes_wanted):
    """Of a GPT-2: 12 bytes a parameter, 12 x width^2 parameters a layer."""
    return max(1, -(-int(bytes_wanted) // (12 * 12 * WIDTH * WIDTH)))


def write_job(folder, arguments):
    tokens = folder / "tokens.bin"
    write_tokens(tokens, 100000)
    threads = max(1, (os.cpu_count() - 1) // arguments.ranks)
    lines = ["schema = 1", "[job]", 'name = "bench"', "[model.config]", 'model_type = "gpt2"', f"vocab_size = {VOCABULARY}",
             "n_positions = 64", f"n_embd = {WIDTH}", f"n_layer = {layers_of(arguments.gb * 1e9)}", "n_head = 16",
             "[device]", 'backend = "cpu"', f"cpu_threads = {threads}", "[zero]", f"stage = {2 if arguments.ranks > 1 else 0}",
             "[data]", "cutoff_len = 32", f"cache_dir = {json.dumps(str(folder / 'cache'))}", "[[data.train]]",
             f"path = {json.dumps(str(tokens))}", 'format = "llmc"', "[train]", 'dtype = "bf16"', "per_device_train_batch_size = 1",
             "[optim]", "learning_rate = 1e-4", "[checkpoint]", 'save_strategy = "steps"', "save_total_limit = 2", 'export = "none"',
             "[report]", "html = false", "tensorboard = false"]
    if arguments.offload:
        lines += ["[offload]", 'optimizer = "cpu"']
    job = folder / "job.toml"
    job.write_text("\n".join(lines) + "\n")
    return job


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(arguments, job, folder, in_background):
    """(saves, steps, bytes of a checkpoint) of a run."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    every = EVERY[in_background]
    sets = {"job.output_dir": out, "checkpoint.async_save": str(in_background).lower(), "checkpoint.save_steps": every,
            "train.max_steps": every * (SAVES + 1) - 1}
    words = [arguments.zerod, "--job", str(job), *(word for key, value in sets.items() for word in ("--set", f"{key}={value}"))]
    if arguments.ranks > 1:
        words = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", str(arguments.ranks), *words]
    said = subprocess.run(words, capture_output=True, text=True)
    if said.returncode:
        sys.exit(f"{' '.join(words)} ended with {said.returncode}:\n{said.stderr[-2000:]}")
    saves = [e for e in rows_of(out / "events.jsonl") if e.get("event") == "checkpoint" and e["step"] % every == 0]
    steps = [r for r in rows_of(out / "metrics.jsonl") if "step_seconds" in r]
    newest = max(out.glob("checkpoint-*"))
    size = sum(f.stat().st_size for f in newest.glob("shard-*"))
    shutil.rmtree(out, ignore_errors=True)
    return saves, steps, size


def pages(bytes_wanted, value):
    """As a rank takes them: in huge pages where there are some; all touched. (the mapping, its address)"""
    memory = mmap.mmap(-1, bytes_wanted, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ctypes.memset(at, value, bytes_wanted)
    return memory, at


def copy(bytes_each, ready, seconds):
    (_a, a), (_b, b) = pages(bytes_each, 1), pages(bytes_each, 2)
    taken = []
    for _ in range(COPIES):
        ready.wait()
        began = time.monotonic()
        ctypes.memmove(b, a, bytes_each)
        taken.append(time.monotonic() - began)
    seconds.put(taken)


def copy_seconds(size, ranks):
    """The median of several; of each, as of a save, the slowest rank's. All ranks copy at once."""
    ready, seconds = multiprocessing.Barrier(ranks), multiprocessing.Queue()
    workers = [multiprocessing.Process(target=copy, args=(size // ranks, ready, seconds)) for _ in range(ranks)]
    for worker in workers:
        worker.start()
    taken = [seconds.get() for _ in workers]
    for worker in workers:
        worker.join()
    return statistics.median(max(each) for each in zip(*taken))


class Disk:
    """Times of dd, each file beside the one before."""

    def __init__(self, folder, size):
        self.folder, self.size, self.count, self.times = folder, size, 0, {DIRECT: [], CACHED: []}

    def write(self):
        for flags, times in self.times.items():
            out = self.folder / f"dd-{self.count}"
            self.count += 1
            began = time.monotonic()
            subprocess.run(["dd", "if=/dev/zero", f"of={out}", "bs=4M", f"count={self.size >> 22}", *flags.split(), "status=none"],
                           check=True)
            times.append(time.monotonic() - began)
            (self.folder / f"dd-{self.count - 3}").unlink(missing_ok=True)

    def seconds(self):
        return [statistics.median(self.times[flags]) for flags in (DIRECT, CACHED)]


def during(saves, steps):
    """Seconds of steps that a write was under way during, and of the others. What is written in the background ends at the time
    of its event; the first two steps of a process warm up."""
    written, others = [], []
    for step in steps[2:]:
        begin, end = step["time"] - step["step_seconds"], step["time"]
        hit = any(begin < s["time"] and end > s["time"] - s["write_seconds"] for s in saves)
        (written if hit else others).append(step["step_seconds"])
    return written, others


def measure(arguments, job, folder):
    disk = Disk(folder, int(arguments.gb * 1e9))
    disk.write()
    saves, steps, size = run(arguments, job, folder, True)
    background = [s for s in saves if s["stall_seconds"] < s["seconds"]]
    if len(background) < 2:
        sys.exit("no save was made in the background: `zerod plan` says why")
    disk.write()
    copied = copy_seconds(size, arguments.ranks)
    synchronous = statistics.median(s["seconds"] for s in run(arguments, job, folder, False)[0])
    disk.write()
    direct, cached = (seconds * size / disk.size for seconds in disk.seconds())
    stall = statistics.median(s["stall_seconds"] for s in background[1:])
    write = statistics.median(s["write_seconds"] for s in background)
    first = background[0]["stall_seconds"]
    hit, others = during(background, steps)
    return {"bytes": size, "stall": stall, "first stall": first, "memcpy": copied, "write": write, "dd": direct, "dd cached": cached,
            "save": synchronous, "stall/memcpy": stall / copied, "stall/save": stall / synchronous, "first/memcpy": first / copied,
            "step/step": statistics.median(hit) / statistics.median(others) if hit and others else float("nan"),
            "speed/dd": direct / write, "speed/cached": cached / write}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zerod")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--gb", type=float, default=2, help="of masters and states, of all ranks")
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--folder", help="on the disk that is measured")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-checkpoint-", dir=arguments.folder))
    try:
        job = write_job(folder, arguments)
        rounds = [measure(arguments, job, folder) for _ in range(arguments.rounds)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name in rounds[0]:
        middle = statistics.median(r[name] for r in rounds)
        print(f"{name:<14}{int(middle):>14}" if name == "bytes" else f"{name:<14}{middle:>14.3f}{'' if '/' in name else ' s'}")


if __name__ == "__main__":
    main()
