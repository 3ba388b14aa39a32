"""power_loss.py CALLS OUTPUT_DIR: is every checkpoint of a run whole if the power fails at the worst moment? Prints TAP.

CALLS is what tests/support/calls.c wrote down. The model: data of a file is on the disk once the file was synced, its name once
its folder was; of what was not, any part may be lost and any part be there, a rename too. So, when a folder gets the name of
a checkpoint, all that is in it is on the disk, and so are the names of metrics.jsonl and events.jsonl and those of the folders
above. The rows that it goes with are in their files when its hidden folder is made, and on the disk before it gets its name: training writes
more of them meanwhile. The name of a checkpoint itself is on the disk before an event tells of it or an older one goes.

Then the same calls without each kind of sync: a kind that nobody would miss is one that this file does not check."""

import os
import re
import sys

ROWS = ("metrics.jsonl", "events.jsonl")


class Disk:
    def __init__(self, out):
        self.out = out
        self.dirty = set()  # files with data that is not synced
        self.loose = set()  # paths whose names are not synced
        self.faults = []
        self.commits = 0
        self.rows = dict.fromkeys(ROWS, 0)    # writes so far
        self.synced = dict.fromkeys(ROWS, 0)  # of them on the disk
        self.wanted = {}                      # hidden folder: self.rows when it was made

    def fault(self, text):
        self.faults.append(text.replace(self.out, "out"))

    def under(self, paths, folder):
        return sorted(p for p in paths if p.startswith(folder + "/"))

    def move(self, old, new):
        for paths in (self.dirty, self.loose):
            for path in self.under(paths, old) + [old]:
                if path in paths:
                    paths.remove(path)
                    paths.add(new + path[len(old):])
        self.loose.add(new)

    def check_whole(self, folder):
        for path in self.under(self.dirty, folder):
            self.fault(f"the data of {path} can be lost")
        for path in self.under(self.loose, folder):
            self.fault(f"the name of {path} can be lost")

    def check_above(self, when):
        path = self.out
        while len(path) > 1:
            if path in self.loose:
                self.fault(f"{when}: the name of {path} can be lost")
            path = os.path.dirname(path)
        for name in ROWS:
            path = f"{self.out}/{name}"
            if path in self.loose:
                self.fault(f"{when}: the name of {name} can be lost")

    def check_rows(self, hidden, new):
        wanted = self.wanted.pop(hidden, None)
        if wanted is None:
            self.fault(f"{new} was never a hidden folder")
            return
        for name in ROWS:
            if self.synced[name] < wanted[name]:
                self.fault(f"{new}: rows of {name} can be lost")

    def row_of(self, path):
        name = os.path.basename(path)
        return name if name in ROWS and os.path.dirname(path) == self.out else None

    def check_told(self, what):
        for path in sorted(self.loose):
            if os.path.dirname(path) == self.out and is_checkpoint(path):
                self.fault(f"{what} before the name of {path} is safe")

    def named(self, old, new):
        if os.path.dirname(new) != self.out:
            return
        if is_checkpoint(new) or os.path.basename(new) == "hf":
            self.check_whole(new)
        if is_checkpoint(new):
            self.check_above(new)
            self.check_rows(old, new)
            self.commits += 1
        if os.path.basename(new).startswith(".trash-"):
            self.check_told(f"{new} goes")

    def call(self, name, path, other=None):
        if name in ("create", "mkdir"):
            if name == "mkdir" or path not in self.dirty:
                self.loose.add(path)
            if name == "mkdir" and os.path.basename(path).startswith(".tmp-checkpoint-"):
                self.wanted[path] = dict(self.rows)
        elif name == "write":
            if path == f"{self.out}/events.jsonl":
                self.check_told("an event is told")
            self.dirty.add(path)
            if self.row_of(path):
                self.rows[self.row_of(path)] += 1
        elif name == "sync":
            if self.row_of(path):
                self.synced[self.row_of(path)] = self.rows[self.row_of(path)]
            self.dirty.discard(path)
            self.loose = {p for p in self.loose if os.path.dirname(p) != path}
        elif name == "remove":
            for paths in (self.dirty, self.loose):
                for each in self.under(paths, path) + [path]:
                    paths.discard(each)
        elif name == "rename":
            self.move(path, other)
            self.named(path, other)
        elif name == "exchange":
            self.move(path, path + " (exchanged)")
            self.move(other, path)
            self.move(path + " (exchanged)", other)
            self.named(path, other)


def is_checkpoint(path):
    return re.fullmatch(r"checkpoint-\d+", os.path.basename(path)) is not None


def run(calls, out):
    disk = Disk(out)
    for call in calls:
        disk.call(*call)
    for path in sorted(disk.loose):
        if os.path.dirname(path) == out and (is_checkpoint(path) or os.path.basename(path) == "hf"):
            disk.fault(f"at the end: the name of {path} can be lost")
    return disk


def kind(calls, i, out):
    """What a sync is for; None: it is none, or of what is not checked."""
    name, path = calls[i][:2]
    if name != "sync":
        return None
    if path == out:
        later = (call for call in calls[i + 1:] if os.path.basename(call[1]) not in ROWS)  # training goes on
        after = next(later, ("", ""))
        if after[0] == "rename" and is_checkpoint(after[-1]):
            return "output_dir before a checkpoint gets its name"
        if calls[i - 1][0] == "rename" and is_checkpoint(calls[i - 1][-1]):
            return "output_dir behind it"
        if calls[i - 1][0] == "rename" and calls[i - 1][-1] == f"{out}/hf":
            return "output_dir behind an export"
        return None
    if out.startswith(path.rstrip("/") + "/"):
        return "the folders above output_dir"
    inside = path[len(out) + 1:]
    if inside in ROWS:
        return inside
    if re.fullmatch(r"\.tmp-checkpoint-\d+", inside):
        return "the checkpoint's folder"
    if re.fullmatch(r"hf\.tmp", inside):
        return "the exported folder"
    if re.match(r"(\.tmp-checkpoint-\d+|hf\.tmp)/", inside):
        return re.sub(r"\d+", "N", re.sub(r"\.tmp$", "", inside))
    return None


tests = failures = 0


def ok(good, name, said=()):
    global tests, failures
    tests += 1
    failures += not good
    print(f"{'' if good else 'not '}ok {tests} - {name}")
    for line in said if not good else ():
        print("#", line)


def main():
    out = os.path.realpath(sys.argv[2])
    with open(sys.argv[1], encoding="utf-8") as file:
        calls = [tuple(line.rstrip("\n").split("\t")) for line in file]
    disk = run(calls, out)
    ok(disk.commits >= 3, f"{disk.commits} checkpoints were named, in {len(calls)} calls")
    ok(not disk.faults, "whatever the power leaves, they are whole", disk.faults[:20])
    kinds = sorted({k for i in range(len(calls)) if (k := kind(calls, i, out))})
    for each in kinds:
        left = [call for i, call in enumerate(calls) if kind(calls, i, out) != each]
        ok(run(left, out).faults, f"missed if not synced: {each}")
    wanted = {"output_dir before a checkpoint gets its name", "output_dir behind it", "output_dir behind an export", "the folders above output_dir",
              "the checkpoint's folder", ".tmp-checkpoint-N/manifest.json", *ROWS}
    ok(wanted <= set(kinds), "all of these are there", sorted(wanted - set(kinds)))
    print(f"1..{tests}")
    sys.exit(failures > 0)


main()
