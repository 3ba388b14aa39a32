#!/usr/bin/env python3
"""What nvcc made of the kernels, read from the objects of a build: no GPU is needed.

    bench/kernels_static.py BUILD [--arch 90[,80]..] [--only REGEX] [--loops] [--check]

A line for each kernel:
  regs   registers of a thread       stack  bytes of local memory a thread has
  smem   static shared memory        warps  that fit a multiprocessor's registers (WARPS at most)
  spill  loads and stores of local memory, and of those how many in loops (60/12: 60, of them 12)
  load, store   accesses to global memory by their bits: 16x128 2x32
  div    integer divisions (by their conversions), and of those how many in loops
  code   instructions
--loops adds the innermost loops: instructions, products of tensor cores (mma), loads of matrices (ldsm), shared loads and
stores, exponentials and their like (mufu), barriers.
--check says nothing but what is wrong: a kernel that has local memory and is not in ALLOWED below; an attention kernel whose inner
loop has other tensor-core products or matrix loads than its tiles ask for, or no asynchronous copies; a barrier that only
some threads may reach by its predicate. What is allowed local memory and has none is told, and no mistake: compilers differ.
Its end is 1 then; 77 where there is no cuobjdump (looked for: $CUOBJDUMP, PATH, the toolkit, Triton's package).
"""
import argparse
import collections
import glob
import os
import re
import shutil
import subprocess
import sys

# Kernels that may keep something in local memory: why, and on which architectures (none: on all).
ALLOWED = [
    (r"^norm_backward_kernel<(float, 4, [68]|fp16, 8, 4), (true|false)>$", "ptxas stays at 128 registers, for two blocks of a multiprocessor"),
    (r"^norm_backward_kernel<(float, (4, 2, true|1, 8, false)|fp16, (8, 1|1, 8), false)>$", "2 words: ptxas stays at 64, for four blocks",
     "75 80 86 89 120"),
    (r"^update_kernel<0, 1, 2, true>$", "2 words, in no loop, at 128 registers", "80 86 89"),
    (r"^rows_kernel<", "Adam-mini's block sums: what lives across the calls that divide 64-bit integers, once in 256 elements"),
    (r"^mma_forward_kernel<mma_shape<\w+, 96, 1, 64, 8>>$", "2 words at 128 registers; GPUs with so much shared memory take four warps", "100"),
]

REGISTERS, GRAIN = 65536, 256  # of a multiprocessor; a warp's registers come in grains
WARPS = {"75": 32, "80": 64, "86": 48, "89": 48, "90": 64, "100": 64, "120": 48}

# Products of tiles in a turn of the inner loop, and tiles of the block's own that they read: of the kernel, by its name.
# A product of M x 16 rows of the warp's own with N others over D columns is M N D / 128 instructions, and reads each 16 x 16
# once.
PRODUCTS = [
    (r"^mma_forward_kernel<mma_shape<\w+, (\d+), (\d+), (\d+), \d>>$", 2, 1),
    (r"^mma_dq_kernel<mma_shape<\w+, (\d+), (\d+), (\d+), \d>>$", 3, 2),
    (r"^mma_dkv_kernel<mma_shape<\w+, (\d+), (\d+), (\d+), \d>, true, true>$", 4, 2),
    (r"^mma_dkv_kernel<mma_shape<\w+, (\d+), (\d+), (\d+), \d>, true, false>$", 3, 2),
    (r"^mma_dkv_kernel<mma_shape<\w+, (\d+), (\d+), (\d+), \d>, false, true>$", 2, 1),
]


def find_cuobjdump():
    places = [os.environ.get("CUOBJDUMP"), shutil.which("cuobjdump"), "/usr/local/cuda/bin/cuobjdump"]
    for root in (os.environ.get("VIRTUAL_ENV"), sys.prefix, "/usr/local", "/usr"):
        if root:
            places += glob.glob(root + "/lib/python3*/*-packages/triton/backends/nvidia/bin/cuobjdump")
    return next((p for p in places if p and os.access(p, os.X_OK)), None)


def readable(names):
    try:
        out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return dict(zip(names, names))
    short = {}
    for name, line in zip(names, out.split("\n")):
        line = re.sub(r"^void ", "", line)
        depth = 0
        for i, c in enumerate(line):  # the arguments: the first parenthesis outside of <>
            depth += (c == "<") - (c == ">")
            if c == "(" and depth == 0:
                line = line[:i]
                break
        line = re.sub(r"\((?:int|bool|optim_\w+)\)", "", line)
        short[name] = line.replace("> >", ">>")
    return short


class Kernel:
    def __init__(self, file, name, arch):
        self.file, self.name, self.arch = file, name, arch
        self.regs = self.stack = self.shared = self.chosen_barriers = 0
        self.code = []  # (address, opcode, branch target or None)

    def loops(self):
        """Innermost loops, as lists of opcodes."""
        spans = sorted({(to, at) for at, _, to in self.code if to is not None and to < at})
        inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
        return [[op for at, op, _ in self.code if a <= at <= b] for a, b in inner]

    def in_loops(self):
        spans = [(to, at) for at, _, to in self.code if to is not None and to < at]
        return [op for at, op, _ in self.code if any(a <= at <= b for a, b in spans)]


def count(ops, *starts):
    return sum(op.startswith(starts) for op in ops)


def widths(ops, start):
    bits = collections.Counter()
    for op in ops:
        if op.startswith(start):
            parts = op.split(".")
            bits[128 if "128" in parts else 64 if "64" in parts else 16 if "U16" in parts or "S16" in parts
                 else 8 if "U8" in parts or "S8" in parts else 32] += 1
    return " ".join("%dx%d" % (bits[b], b) for b in sorted(bits, reverse=True)) or "-"


def read(tool, path, arch, with_code):
    run = lambda *args: subprocess.run([tool, "-arch", "sm_" + arch, *args, path], capture_output=True, text=True).stdout
    kernels, now = {}, None
    file = os.path.basename(path).replace(".cu.o", "")
    for line in run("-sass").split("\n") if with_code else []:
        found = re.match(r"\s*Function : (\S+)", line)
        if found:
            now = kernels.setdefault(found[1], Kernel(file, found[1], arch))
            continue
        found = now and re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+ )?\s*([A-Z][\w.]*)(.*?);", line)
        if found:
            to = re.search(r"\b0x([0-9a-f]+)\s*$", found[4].strip()) if found[3].startswith("BRA") else None
            now.code.append((int(found[1], 16), found[3], int(to[1], 16) if to else None))
            now.chosen_barriers += bool(found[2]) and found[3].startswith("BAR")
    now = None
    for line in run("--dump-resource-usage").split("\n"):
        found = re.match(r"\s*Function (\S+):", line)
        if found:
            now = kernels.setdefault(found[1], Kernel(file, found[1], arch))
        elif now and "REG:" in line:
            values = dict(re.findall(r"(\w+)(?:\[0\])?:(\d+)", line))
            now.regs, now.stack = int(values["REG"]), int(values["STACK"])
            now.shared = max(0, int(values["SHARED"]) - (1024 if int(arch) >= 90 else 0))  # the system's
    return list(kernels.values())


def warps(kernel):
    each = -(-kernel.regs * 32 // GRAIN) * GRAIN
    most = WARPS.get(kernel.arch, 64)
    return min(most, REGISTERS // each // 4 * 4) if each else most


def show(kernels, names, with_loops):
    print("%-74s %4s %5s %6s %5s %9s %-22s %-16s %6s %6s" % (
        "kernel", "regs", "stack", "smem", "warps", "spill", "load", "store", "div", "code"))
    for k in kernels:
        ops, looped = [op for _, op, _ in k.code], k.in_loops()
        spills = "%d/%d" % (count(ops, "LDL", "STL"), count(looped, "LDL", "STL"))
        divisions = "%d/%d" % (count(ops, "I2F.U32.RP", "I2F.RP"), count(looped, "I2F.U32.RP", "I2F.RP"))
        print("%-74s %4d %5d %6d %5d %9s %-22s %-16s %6s %6d" % (
            names[k.name][-74:], k.regs, k.stack, k.shared, warps(k), spills, widths(ops, "LDG"), widths(ops, "STG"),
            divisions, len(ops)))
        for loop in k.loops() if with_loops else []:
            if len(loop) > 8:
                print("    loop of %d: mma %d, ldsm %d, lds %d, sts %d, global %d, mufu %d, barriers %d, local %d" % (
                    len(loop), count(loop, "HMMA"), count(loop, "LDSM"), count(loop, "LDS.", "LDS"),
                    count(loop, "STS"), count(loop, "LDG", "STG", "LDGSTS"), count(loop, "MUFU"),
                    count(loop, "BAR"), count(loop, "LDL", "STL")))


def products_wrong(kernel, name):
    """What the loop with the most products has and should not have."""
    for pattern, products, own in PRODUCTS:
        found = re.search(pattern, name)
        if not found or not kernel.code or int(kernel.arch) < 80:  # where they are empty
            continue
        D, M, N = (int(x) for x in found.groups())
        loop = max(kernel.loops(), key=lambda ops: count(ops, "HMMA"), default=[])
        want = products * M * N * D // 128, (products * N + own * M * 16) * D // 256
        have = count(loop, "HMMA"), count(loop, "LDSM")
        if have != want:
            return ["%s: a turn of its loop has %d products and %d loads of matrices, not %d and %d" % (name, *have, *want)]
        if not count(loop, "LDGSTS"):
            return ["%s: no asynchronous copies in its loop" % name]
    return []


def check(kernels, names):
    wrong, used = [], set()
    for k in kernels:
        reasons = [i for i, (what, _, *archs) in enumerate(ALLOWED)
                   if re.search(what, names[k.name]) and (not archs or k.arch in archs[0].split())]
        used.update(reasons if k.stack else [])
        if k.stack and not reasons:
            wrong.append("%s: %d bytes of local memory, %d registers" % (names[k.name], k.stack, k.regs))
        wrong += products_wrong(k, names[k.name])
        if k.chosen_barriers:
            wrong.append("%s: %d barriers with a predicate" % (names[k.name], k.chosen_barriers))
    for line in wrong + ["allowed local memory, and has none: " + what for i, (what, *_) in enumerate(ALLOWED) if i not in used]:
        print(line)
    print("%d kernels, %d complaints" % (len(kernels), len(wrong)))
    return bool(wrong) or not kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--arch", default="90")
    parser.add_argument("--only", default="")
    parser.add_argument("--loops", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    tool = find_cuobjdump()
    if not tool:
        print("no cuobjdump: $CUOBJDUMP, PATH, the toolkit and Triton's package have none")
        return 77
    kernels = []
    for path in sorted(glob.glob(args.build + "/**/*.cu.o", recursive=True)):
        if "/tests/" not in path:
            for arch in args.arch.split(","):
                kernels += read(tool, path, arch, not args.check or "attention_mma_" in path)
    names = readable([k.name for k in kernels])
    kernels = [k for k in kernels if re.search(args.only, names[k.name])]
    if args.check:
        return check(kernels, names)
    show(kernels, names, args.loops)
    return 0


if __name__ == "__main__":
    sys.exit(main())
