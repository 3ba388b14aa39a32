#!/usr/bin/env python3
"""Every place where the sources make, change or remove files is in files.txt, with its flags; scripts start python3 isolated.

    files.py            prints TAP; run from the repository's root
    files.py --list     prints the list as the sources have it

output_dir may be writable to a group, caches and /tmp to everyone: what has a name there may be a link that someone else made.
So a file is created with O_EXCL or opened with O_NOFOLLOW, never by fopen; new files go through fs_create, trees through
fs_remove_tree. A new place is a line of files.txt."""

import collections
import os
import re
import sys

FOLDERS = "base kernels comm data model optim offload zero train daemon".split()
OPENS = "open open64 openat fopen freopen creat mkstemp mkostemp mkostemps mkdtemp tmpfile mktemp tempnam tmpnam fs_create".split()
CHANGES = ("unlink unlinkat remove rmdir rename renameat renameat2 link linkat symlink symlinkat mkdir mkdirat truncate chmod lchown "
           "chown fchmodat fchownat nftw ftw json_dump_file ofstream fs_remove_tree").split()
# Why each is not used: what to take instead.
NEVER = {
    "creat": "fs_create", "mktemp": "mkostemp", "tempnam": "mkostemp", "tmpnam": "mkostemp", "remove": "unlink or fs_remove_tree",
    "nftw": "fs_remove_tree", "ftw": "fs_remove_tree", "json_dump_file": "fs_write_file", "ofstream": "fs_write_file",
    "freopen": "fs_create and fdopen", "mkstemp": "mkostemp", "truncate": "ftruncate",
}
CALL = re.compile(r"(?<![\w.>])(%s)\s*\(" % "|".join(OPENS + CHANGES))
FLAG = re.compile(r"\bO_[A-Z]+\b")


def arguments(text, start):
    """The arguments of the call whose parenthesis opens at start."""
    depth, out = 0, [""]
    for at in range(start, len(text)):
        c = text[at]
        depth += (c in "([{") - (c in ")]}")
        if depth == 0:
            return [" ".join(a.split()) for a in out]
        if c == "," and depth == 1:
            out.append("")
        elif at > start:
            out[-1] += c
    return []


def without_comments(text):
    keep = lambda m: m.group(0) if m.group(0)[0] in "\"'" else re.sub(r"[^\n]", " ", m.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', keep, text, flags=re.S)


def flags_of(call, args, text, at):
    """The flags of an open: those written there, or those of the variable that is given."""
    words = set(FLAG.findall(" ".join(args)))
    for name in re.findall(r"\b[a-z_]+\b", " ".join(args[1:])):
        for found in re.finditer(r"\b%s = ([^;]*O_[^;]*);" % name, text[:at]):
            words |= set(FLAG.findall(found.group(1)))
    return words


def places():
    """[(line of the list, what is wrong with it or "")]"""
    found = []
    for folder in FOLDERS:
        for where, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                if not name.endswith((".c", ".h", ".cpp", ".cu", ".cuh", ".inc")):
                    continue
                path = os.path.join(where, name)
                with open(path, encoding="utf-8") as file:
                    text = without_comments(file.read())
                for call in CALL.finditer(text):
                    verb, args = call.group(1), arguments(text, call.end() - 1)
                    if re.search(r"\b(int|bool|void|zd_status|FILE \*)\s*$", text[:call.start()]):
                        continue  # a declaration
                    wrong = "use " + NEVER[verb] if verb in NEVER else ""
                    flags = ""
                    if verb == "fopen":
                        if re.fullmatch(r'"re?"', args[1]):
                            continue
                        wrong = "use fs_create and fdopen"
                    elif verb in ("open", "open64", "openat"):
                        words = flags_of(verb, args, text, call.start())
                        if not words & {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"} and words & {"O_RDONLY", "O_PATH"}:
                            continue
                        flags = " ".join(sorted(words))
                        if not words & {"O_EXCL", "O_NOFOLLOW"} or "O_CLOEXEC" not in words:
                            wrong = "O_EXCL or O_NOFOLLOW, and O_CLOEXEC"
                    elif verb.startswith("mk") and "temp" in verb:
                        flags = " ".join(sorted(FLAG.findall(" ".join(args))))
                    found.append((" ".join(("%s: %s %s" % (path, verb, flags)).split()), wrong))
    counts = collections.Counter(found)
    return [("%s x%d" % (line, n) if n > 1 else line, wrong) for (line, wrong), n in counts.items()]


def python_of_scripts():
    """Lines of scripts that start python3 so that it imports from the folder it is started in: -c, -m and - without -I."""
    found = []
    for folder in ("deploy", "tests", "bench"):
        for where, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(where, name)
                if name.endswith((".sh", ".build", ".service", ".sbatch")):
                    with open(path, encoding="utf-8") as file:
                        found += ["%s:%d" % (path, n) for n, line in enumerate(file, 1)
                                  if re.search(r"python3?[\"']? +(-[B-HJ-Zb-z]+ +)*(-[cm]\b|-\s|-$|<<)", line)]
    return found


def main():
    found = places()
    if sys.argv[1:] == ["--list"]:
        print("\n".join(line for line, _ in found))
        return 0
    listed, reasons = [], {}
    with open("tests/docs/files.txt", encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                line, _, reason = line.rstrip("\n").partition(" - ")
                listed.append(line)
                reasons[line] = reason
    careless = ["%s (%s)" % (line, wrong) for line, wrong in found if wrong and not reasons.get(line)]
    have = {line for line, _ in found}
    new, gone = sorted(have - set(listed)), sorted(set(listed) - have)
    bad = 0
    for number, (what, lines) in enumerate((
            ("no file is made or removed carelessly, without a reason in files.txt", careless),
            ("every place that makes, changes or removes a file is in files.txt", new),
            ("files.txt has no place that is not there", gone),
            ("python3 -c, -m and - in scripts have -I: nothing is imported from the folder it is started in", python_of_scripts())), 1):
        print("%s %d - %s" % ("not ok" if lines else "ok", number, what))
        for line in lines:
            print("# " + line)
        bad += bool(lines)
    print("1..4")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
