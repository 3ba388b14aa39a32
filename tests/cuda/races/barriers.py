#!/usr/bin/env python3
"""barriers.py BUILD SOURCE [FILE:LINE]...: leaves each barrier of the kernels out, one at a time, and wants a race to be found. Prints TAP.

A barrier that is left out (ZD_STANDIN_LEAVE_OUT) still keeps the threads of a block together, so that no other mistake is
made; it orders nothing in the eyes of races.cpp. Of the programs of tests/cuda/races, one that runs the kernel is taken. FILE:LINE: these alone."""

import concurrent.futures
import os
import re
import subprocess
import sys

# The first folder or file that begins a site's path: the program, and which of its tests.
PROGRAMS = (
    ("kernels/attention/attention_mma", "attention_cuda", "attention_cuda/tensor_cores*"),
    ("kernels/attention/attention_tiles", "attention_cuda", "attention_cuda/tiles*"),
    ("kernels/attention/", "attention_cuda", "attention_cuda/rows*"),
    ("kernels/matmul/", "matmul_cuda", "matmul_cuda/our_own*"),
    ("kernels/", "cuda", "kernels_cuda/@(bf16|losses|heads)*"),
    ("optim/", "optim_cuda", "*"),
)
# (file, the how many-th of it): why no test misses it.
UNMISSED = {
    ("attention_mma_tiles.cuh", 1): "barriers of all threads lie between the last ldmatrix of these rows and here",
    ("sums_cuda.cu", 1): "a warp comes here twice from 16.7 million elements on",
}
BARRIER = re.compile(r"\b__sync(threads|warp)\(")
FOUND = re.compile(r"^.*a race: .*$", re.MULTILINE)


def sites(source):
    for room in ("kernels", "optim", "comm", "base"):
        for folder, _, names in sorted(os.walk(os.path.join(source, room))):
            for name in sorted(names):
                if not name.endswith((".cu", ".cuh")):
                    continue
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    numbers = [number for number, line in enumerate(file, 1) if BARRIER.search(line)]
                for nth, number in enumerate(numbers, 1):
                    yield os.path.relpath(os.path.join(folder, name), source), number, UNMISSED.get((name, nth))


def leave_out(build, path, number, why):
    """The first race that is found; "": there is none."""
    if why:
        return ""
    program, tests = next(row[1:] for row in PROGRAMS if path.startswith(row[0]))
    environment = dict(os.environ, ZD_STANDIN_LEAVE_OUT=f"{os.path.basename(path)}:{number}", ZD_STANDIN_ABORT="1")
    ran = subprocess.run([os.path.join(build, "tests/cuda/races", "races_" + program), "--fail-fast", "--filter", tests], env=environment,
                         capture_output=True, text=True, errors="replace")
    found = FOUND.search(ran.stdout + ran.stderr)
    return found.group(0).strip() if found else ""


def main():
    build, source, *wanted = sys.argv[1:]
    all_sites = [site for site in sites(source) if not wanted or f"{os.path.basename(site[0])}:{site[1]}" in wanted]
    print(f"1..{len(all_sites)}")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda site: leave_out(build, *site), all_sites)
        for number, (site, race) in enumerate(zip(all_sites, found), 1):
            ok = "ok" if race or site[2] else "not ok"
            print(f"{ok} {number} - without {site[0]}:{site[1]}: {race or 'no race is found'}{' # SKIP ' + site[2] if site[2] else ''}", flush=True)


main()
