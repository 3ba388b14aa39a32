"""crash_states.py TRACE OUTPUT_DIR LOADS [STATES [KINDS [SINGLES]]]: does the old or the new checkpoint load, whatever a loss of power leaves? Prints TAP.

TRACE is what tests/support/calls.c wrote down of runs in OUTPUT_DIR, with the data. LOADS is tests/train/checkpoint/loads.c,
which says of a folder what a run would go on from. The model of a disk: bytes of a file are on it once the file was synced,
names in a folder once the folder was; of what was not, any call may be there or not. A rename is there or not, in one.

After every call these are tried: all there; nothing of what was not synced; each such write or name alone missing; the last
write torn at 512 bytes and at 4 KiB; and 200 random subsets, torn at random. Wanted each time: what loads is the last
checkpoint that was committed or of which events.jsonl tells, or a newer one; every checkpoint that has its name is whole;
metrics.jsonl has the rows of all its steps; the exported model is the old one or the new one, once there was one.

Then each kind of sync and of rename is left out, all of that kind: a kind that nobody would miss is one that this misses.
STATES: random subsets, for 200; KINDS: left out are only kinds with this in their name; SINGLES: of single ones missing so many after each call, at random."""

import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile

OURS = re.compile(r"checkpoint-|\.tmp-|\.trash-|\.replaced-|hf$|hf\.tmp$|(metrics|events)\.jsonl$")
CHECKPOINT = re.compile(r"checkpoint-(\d+)$")
REMEMBERED = 1 << 30  # bytes of contents


class Node:
    """A file or a folder: what is on the disk, what the calls since its last sync made of it, and those calls."""

    def __init__(self, is_dir):
        self.is_dir = is_dir
        self.live = {} if is_dir else b""
        self.disk = {} if is_dir else b""
        self.pending = []  # (call's number, change)


def change(data, kind, at, more):
    """Of a bytearray."""
    if kind == "truncate":
        del data[at:]
    data.extend(bytes(max(0, at - len(data))))
    if kind == "write":
        data[at:at + len(more)] = more


def changed(data, changes):
    if not changes:
        return data
    data = bytearray(data)
    for each in changes:
        change(data, *each)
    return bytes(data)


class Disk:
    def __init__(self):
        self.root = Node(True)
        self.dirty = {}  # nodes with pending calls
        self.known, self.bytes = {}, 0  # contents by how they came about

    def find(self, path):
        node = self.root
        for part in path.split("/") if path else ():
            node = node.live.get(part) if node and node.is_dir else None
        return node

    def split(self, path):
        folder, _, name = path.rpartition("/")
        return self.find(folder), name

    def names(self, i, folder, entries):
        for name, node in entries.items():
            if node:
                folder.live[name] = node
            else:
                folder.live.pop(name, None)
        self.later(i, folder, ("names", 0, entries))

    def later(self, i, node, change):
        node.pending.append((i, change))
        self.dirty[id(node)] = node

    def call(self, i, name, path, other, at, data):
        folder, last = self.split(path)
        if folder is None:
            return
        node = folder.live.get(last) if path else self.root
        if name in ("create", "mkdir"):
            if path and not node:
                self.names(i, folder, {last: Node(name == "mkdir")})
        elif node is None:
            return
        elif name in ("write", "truncate", "allocate"):
            if name != "truncate" or at < len(node.live) or at > len(node.live):
                node.live = changed(node.live, [(name, at, data)])
                self.later(i, node, (name, at, data))
        elif name == "sync":
            node.disk = dict(node.live) if node.is_dir else node.live
            node.pending = []
            self.dirty.pop(id(node), None)
        elif name == "remove":
            self.names(i, folder, {last: None})
        else:  # rename, exchange
            to, new = self.split(other)
            if to is None:
                return
            back = to.live.get(new) if name == "exchange" else None
            if to is folder:
                self.names(i, folder, {last: back, new: node})
            else:
                self.names(i, folder, {last: back})
                self.names(i, to, {new: node})

    def after(self, node, keep):
        """What the disk has of a node when of its pending calls those are there that `keep` wants (a number: torn there)."""
        if node.is_dir:
            entries = dict(node.disk)
            for i, (_, _, more) in node.pending:
                if keep(i) is not False:
                    for name, entry in more.items():
                        if entry:
                            entries[name] = entry
                        else:
                            entries.pop(name, None)
            return entries
        if not node.pending:
            return node.disk
        kept = tuple((i, cut) for i, _ in node.pending if (cut := keep(i)) is not False)
        key = (id(node), id(node.disk), kept)
        if key not in self.known:
            cuts = dict(kept)
            data = changed(node.disk, [(kind, at, more if cuts[i] is True or kind != "write" else more[:cuts[i]])
                                       for i, (kind, at, more) in node.pending if i in cuts])
            if self.bytes > REMEMBERED:
                self.known, self.bytes = {}, 0
            self.bytes += len(data)
            self.known[key] = data, node.disk  # and so that its id stays its own
        return self.known[key][0]

    def files(self, keep, node=None, path=""):
        for name, entry in self.after(node or self.root, keep).items():
            if not path and not OURS.match(name):
                continue
            inner = path + name
            if entry.is_dir:
                yield inner + "/", b""
                yield from self.files(keep, entry, inner + "/")
            else:
                yield inner, self.after(entry, keep)


class Loader:
    """Asks LOADS of each state once."""

    def __init__(self, program):
        self.folder = tempfile.mkdtemp(prefix="zerod-crash-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        os.mkdir(self.folder + "/pool")
        self.known, self.hashes, self.keep, self.bytes = {}, {}, [], 0
        self.program = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def hash(self, data):
        if id(data) not in self.hashes:
            digest = hashlib.blake2b(data, digest_size=16).hexdigest()
            self.hashes[id(data)] = digest
            self.keep.append(data)
            self.bytes += len(data)
            path = f"{self.folder}/pool/{digest}"
            if not os.path.exists(path):
                with open(path, "wb") as file:
                    file.write(data)
        return self.hashes[id(data)]

    def ask(self, files):
        """(step that loads or -1, checkpoints that are named and damaged, error) of the state's checkpoints."""
        if self.bytes > REMEMBERED:
            self.forget()
        state = tuple(sorted((path, "" if path.endswith("/") else self.hash(data)) for path, data in files if path[0] in "c."))
        if state not in self.known:
            out = self.folder + "/out"
            os.mkdir(out)
            for path, digest in state:
                if path.endswith("/"):
                    os.makedirs(f"{out}/{path}", exist_ok=True)
            for path, digest in state:
                if digest:
                    os.link(f"{self.folder}/pool/{digest}", f"{out}/{path}")
            self.program.stdin.write(out + "\n")
            self.program.stdin.flush()
            self.known[state] = json.loads(self.program.stdout.readline())
        return self.known[state]

    def forget(self):
        for name in os.listdir(self.folder + "/pool"):
            os.unlink(f"{self.folder}/pool/{name}")
        self.hashes, self.keep, self.bytes = {}, [], 0

    def end(self):
        self.program.stdin.close()
        self.program.wait()
        self.forget()
        os.rmdir(self.folder + "/pool")
        os.rmdir(self.folder)


def read_trace(path, out):
    calls = []
    with open(path, "rb") as file:
        while line := file.readline():
            name, first, second, at, size = line.decode().rstrip("\n").split("\t")
            data = file.read(int(size))
            inside = [p[len(out):].lstrip("/") for p in (first, second)]
            if first == out or first.startswith(out + "/"):
                calls.append((name, *inside, int(at), data))
    return calls


def steps_of(files, name, wanted):
    """Of the rows of a file that are whole, and wanted."""
    steps = set()
    for line in next((data for path, data in files if path == name), b"").split(b"\n"):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and wanted(row):
            steps.add(row["step"])
    return steps


class Wanted:
    """What must load after each call: from the calls as they were made, whatever is left out of them later."""

    def __init__(self, calls):
        disk, named, self.low, self.high, self.hf, models = Disk(), 0, [], [], [], []
        safe = 0
        for i, call in enumerate(calls):
            disk.call(i, *call)
            name, path, other = call[:3]
            if name in ("rename", "exchange"):
                if match := CHECKPOINT.match(other):
                    named = max(named, int(match[1]))
                if other == "hf":
                    models.append({p: d for p, d in disk.files(lambda _: True) if p.startswith("hf/")})
            if name == "sync" and path == "":
                safe = named
                self.old = len(models)
            self.low.append(safe)
            self.high.append(named)
            # the exported models that may be there: the last that was safe (None: none) and newer ones
            count = getattr(self, "old", 0)
            self.hf.append(([None] if count == 0 else []) + models[max(0, count - 1):])
        self.exports = len(models)


def faults(disk, i, wanted, loader, keep):
    files = list(disk.files(keep))
    verdict = loader.ask(files)
    found = []
    step = verdict["step"]
    if verdict["error"]:
        found.append(verdict["error"])
    elif not max(wanted.low[i], -1) <= max(step, 0) <= wanted.high[i]:
        found.append(f"step {step} loads, of {wanted.low[i]} to {wanted.high[i]}")
    if verdict["damaged"]:
        found.append(f"{verdict['damaged']} checkpoints are named and damaged")
    told = max(steps_of(files, "events.jsonl", lambda row: row.get("event") == "checkpoint"), default=0)
    if told > max(step, 0):
        found.append(f"step {step} loads, and an event tells of {told}")
    if step > 0 and (lost := set(range(1, step + 1)) - steps_of(files, "metrics.jsonl", lambda row: "loss" in row)):
        found.append(f"step {step} loads, the rows of {sorted(lost)} are lost")
    model = {path: data for path, data in files if path.startswith("hf/") and not path.endswith("/")} or None
    if model not in [m and {p: d for p, d in m.items() if not p.endswith("/")} for m in wanted.hf[i]]:
        found.append("the exported model is neither the old nor the new one")
    return found


def pending(disk):
    """Numbers of calls that are not safe, of what matters."""
    calls = {}
    for node in disk.dirty.values():
        for i, change in node.pending:
            if node is disk.root and not any(OURS.match(name) for name in change[2]):
                continue
            calls[i] = change
    return calls


def choices(disk, i, chance, subsets, singles):
    """Which of the pending calls are there: all of the states to try after call i."""
    calls = pending(disk)
    yield lambda _: True
    yield lambda _: False
    for each in calls if len(calls) <= singles else chance.sample(sorted(calls), singles):
        yield lambda n, each=each: n != each
    if i in calls and calls[i][0] == "write":
        length = len(calls[i][2])
        for grain in (512, 4096):
            if length > grain:
                cut = chance.randrange(1, (length + grain - 1) // grain) * grain
                yield lambda n, cut=cut: cut if n == i else True
    for _ in range(subsets):
        kept = {}
        for each, (kind, _, more) in calls.items():
            kept[each] = chance.random() < 0.5
            if kept[each] and kind == "write" and len(more) > 512 and chance.random() < 0.3:
                kept[each] = chance.randrange(1, (len(more) + 511) // 512) * 512
        yield lambda n, kept=kept: kept.get(n, True)


def replay(calls, wanted, loader, subsets=0, singles=1 << 30, stop=False):
    """(states tried, faults) of the calls, some of which may be None: left out."""
    disk, chance, tried, found = Disk(), random.Random(1), 0, []
    random_at = {}
    for _ in range(subsets):
        at = chance.randrange(len(calls))
        random_at[at] = random_at.get(at, 0) + 1
    for i, call in enumerate(calls):
        if call:
            disk.call(i, *call)
        for keep in choices(disk, i, chance, random_at.get(i, 0), singles):
            tried += 1
            for fault in faults(disk, i, wanted, loader, keep):
                found.append(f"after call {i} ({' '.join(map(str, call[:3])) if call else 'left out'}): {fault}")
                if stop:
                    return tried, found
    return tried, found


# --- what may be left out ---------------------------------------------------------------------------------------------


def is_ours(path):
    return OURS.match(path.split("/")[0])


def kind(calls, i):
    """What a sync or rename is for; None: it is neither, or of what is not looked at."""
    name, path, other = calls[i][:3]
    before = calls[i - 1] if i else ("", "", "")
    after = calls[i + 1] if i + 1 < len(calls) else ("", "", "")
    plain = re.sub(r"\d+", "N", path)
    if name in ("rename", "exchange"):
        return f"rename of {plain}" if is_ours(path) and not path.endswith(".jsonl") else None
    if name != "sync":
        return None
    if path == "":
        if before[0] in ("rename", "exchange") and CHECKPOINT.match(before[2]):
            return "sync of output_dir behind a checkpoint's name"
        if before[0] in ("rename", "exchange") and before[2] == "hf":
            return "sync of output_dir behind an export's name"
        if before[0] == "rename" and before[2].startswith(".trash-"):
            return "sync of output_dir before an old checkpoint is removed"
        if after[0] in ("rename", "exchange") and CHECKPOINT.match(after[2]):
            return "sync of output_dir before a checkpoint has its name"
        return None
    return f"sync of {plain}" if is_ours(path) and path != "events.jsonl" else None


def without(calls, which):
    """Left out; what was done later under the name that a rename gave is then done under the old one."""
    left, moved = [], []
    for i, call in enumerate(calls):
        name, path, other, at, data = call
        for old, new in moved:
            path = old + path[len(new):] if path == new or path.startswith(new + "/") else path
        if kind(calls, i) == which:
            if name in ("rename", "exchange") and other.startswith(".trash-"):
                moved.append((path, other))
            left.append(None)
        else:
            left.append((name, path, other, at, data))
    return left


tests = failures = 0


def ok(good, name, said=()):
    global tests, failures
    tests += 1
    failures += not good
    print(f"{'' if good else 'not '}ok {tests} - {name}", flush=True)
    for line in said if not good else ():
        print("#", line)


def main():
    out = os.path.realpath(sys.argv[2])
    calls = read_trace(sys.argv[1], out)
    wanted = Wanted(calls)
    loader = Loader(sys.argv[3])
    singles = int(sys.argv[6]) if len(sys.argv) > 6 else 1 << 30
    tried, found = replay(calls, wanted, loader, int(sys.argv[4]) if len(sys.argv) > 4 else 200, singles)
    ok(wanted.high[-1] >= 4 and wanted.exports >= 2, f"{len(calls)} calls, checkpoints up to step {wanted.high[-1]}, {wanted.exports} exports")
    ok(not found, f"{tried} states, of which {len(loader.known)} differ in their checkpoints: the old or the new one loads", found[:20])
    wants = sys.argv[5] if len(sys.argv) > 5 else ""
    kinds = sorted({k for i in range(len(calls)) if (k := kind(calls, i)) and wants in k})
    for each in kinds:
        tried, found = replay(without(calls, each), wanted, loader, 0, singles, stop=True)
        ok(found, f"would be missed, after {tried} states: {each}")
    print(f"1..{tests}")
    loader.end()
    sys.exit(failures > 0)


main()
