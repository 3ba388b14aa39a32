#!/usr/bin/env python3
"""What includes what, and what calls what, as the linker sees it: no room includes or calls one that STYLE.md does not let it
include, and files that call each other in a circle are in circles.txt, with a reason.

    circles.py BUILD CC...      prints TAP; run from the repository's root

Arrows are includes, and symbols: an object of BUILD uses one that another defines. So a call up through a declaration in a lower
header is seen, which includes do not show. Inline functions, types and tables of functions make no arrow of the second kind."""

import os
import re
import shutil
import subprocess
import sys
import tempfile


def tables(root):
    """{folder: folders and files it may include}, {room: rooms likewise}, {rooms that may nothing else}."""
    folders, rooms, narrow, part = {}, {}, set(), ""
    with open(os.path.join(root, "STYLE.md"), encoding="utf-8") as style:
        for line in style:
            if line.startswith("## "):
                part = line[3:].split()[0]
            if part not in ("Folders,", "Folders", "Rooms") or not line.startswith("| `"):
                continue
            cells = [cell.replace("`", "").strip() for cell in line.split("|")]
            name, may = cells[1], cells[3]
            if part == "Rooms":
                above = [room for room in rooms if room.split("/")[0] == name.split("/")[0]]
                rooms[name] = set(above if may == "every room" else may.split())
                if may.startswith("only"):
                    narrow.add(name)
            else:
                folders[name] = set(list(folders) if may == "all above" else may.split())
    return folders, rooms, narrow


def sources(root, folders, endings=(".c", ".cpp", ".cu", ".S")):
    found = []
    for folder in folders:
        for where, _, names in os.walk(os.path.join(root, folder)):
            found += [os.path.relpath(os.path.join(where, n), root) for n in names if n.endswith(endings)]
    return found


def includes(root, folders):
    """{(file, file that it includes by a name with a folder): []}; one without is of the includer's own, or made by the build."""
    arrows = {}
    for file in sources(root, folders, (".c", ".h", ".cpp", ".cu", ".cuh", ".inc")):
        with open(os.path.join(root, file), encoding="utf-8") as text:
            arrows.update({(file, name): [] for name in re.findall(r'^ *# *include "([^"]*/[^"]*)"', text.read(), re.M)})
    return {arrow: names for arrow, names in arrows.items() if not arrow[1].startswith("tests/")}


def objects(build, files):
    """{source: its objects}. meson names the object of b/c.c in a library of folder a "b_c.c.o"; a generator's has the base
    name of its source, which is unique among .cu files."""
    of_name, cuda = {}, {}
    for file in files:
        folder = os.path.dirname(file)
        while folder:
            of_name[folder, os.path.relpath(file, folder).replace("/", "_")] = file
            folder = os.path.dirname(folder)
        if file.endswith(".cu"):
            cuda[os.path.basename(file)] = file
    made = {}
    for where, _, names in os.walk(build):
        folder, private = os.path.split(os.path.relpath(where, build))
        if not private.endswith(".p"):
            continue
        for name in names:
            if not name.endswith(".o"):
                continue
            stem, at = name[:-2], folder
            while stem.startswith(".._"):
                stem, at = stem[3:], os.path.dirname(at)
            file = of_name.get((at, stem))
            plain = re.sub(r"\.cpp$", "", re.sub(r"^meson-generated_", "", stem))
            file = file or cuda.get(plain)
            if file:
                made.setdefault(file, []).append(os.path.join(where, name))
    return made


def calls(made):
    """{(file, file): symbols}"""
    defines, uses = {}, {}
    of_object = {path: file for file, built in made.items() for path in built}
    told = subprocess.run(["nm", "-g", "-A"] + list(of_object), check=True, capture_output=True, text=True).stdout
    for line in told.splitlines():
        path, words = line.split(":", 1)
        file, words = of_object[path], words.split()
        if len(words) == 3 and words[1] in "TDBRC":
            defines[words[2]] = file
        elif len(words) == 2 and words[0] == "U":
            uses.setdefault(file, set()).add(words[1])
    arrows = {}
    for file, names in uses.items():
        for name in sorted(names):
            other = defines.get(name, file)
            if other != file:
                arrows.setdefault((file, other), []).append(name)
    return arrows


def circles(arrows):
    """Sets of nodes of which each reaches each other, by Tarjan's algorithm without recursion."""
    after = {}
    for a, b in arrows:
        after.setdefault(a, set()).add(b)
    order, low, path, on_path, found = {}, {}, [], set(), []
    for start in sorted(after):
        if start in order:
            continue
        work = [(start, None)]
        while work:
            node, rest = work.pop()
            if rest is None:
                order[node] = low[node] = len(order)
                path.append(node)
                on_path.add(node)
                rest = sorted(after.get(node, ()))
            while rest:
                other = rest.pop()
                if other not in order:
                    work += [(node, rest + [other]), (other, None)]
                    break
                if other in on_path:
                    low[node] = min(low[node], low[other])
            else:
                if low[node] == order[node]:
                    circle = set()
                    while node not in circle:
                        circle.add(path.pop())
                    on_path -= circle
                    if len(circle) > 1:
                        found.append(circle)
    return found


def strays_up(arrows, root, verb):
    folders, rooms, narrow = tables(root)
    for (a, b), names in sorted(arrows.items()):
        room, other = os.path.dirname(a), os.path.dirname(b)
        folder, their = room.split("/")[0], other.split("/")[0]
        if room == other:
            continue
        may = rooms.get(room, set())
        is_let = other in may if folder == their else {their, b} & folders[folder]
        if not is_let or room in narrow and not {other, their} & may or room != folder and room not in rooms:
            yield "%s %s %s: %s" % (a, verb, b, " ".join(names[:4]))


def rooms_of(arrows):
    return {(os.path.dirname(a), os.path.dirname(b)) for a, b in arrows if os.path.dirname(a) != os.path.dirname(b)}


def listed(path):
    """Lines "ROOM: FILE FILE... - why". A line that begins with a blank goes on with the reason."""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            match = re.match(r"(\S+): (.*?) - (.*)", line)
            if match:
                yield {os.path.join(match[1], name) for name in match[2].split()}, match[3]


def complaints(found, kept, made):
    """Circles that are not listed; listed ones that are none any more, where this build has all of their files."""
    for circle in found:
        if not any(circle <= files for files, _ in kept):
            yield "a circle: " + " ".join(sorted(circle))
    for files, why in kept:
        missing = [file for file in files if not os.path.exists(file)]
        if missing:
            yield "circles.txt names %s, which is not there" % " ".join(missing)
        elif len(why) < 20:
            yield "circles.txt has no reason for " + " ".join(sorted(files))
        elif files <= set(made) and files not in found:
            yield "circles.txt has what is no circle, or a smaller one: " + " ".join(sorted(files))


def paths(text):
    """{name: files} of lines "* **NAME**: `FILE`, ~`FILE`, ..." and the lines that go on with them; with "~" a file is entered by
    a hook or a thread. A bare name lies in the folder of the file before it."""
    found = {}
    for match in re.finditer(r"^\* \*\*(\w+)\*\*[^:\n]*: (.*(?:\n  .*)*)", text, re.M):
        folder, files = "", []
        for hook, name in re.findall(r"(~?)`([\w./]+\.\w+)`", match[2]):
            folder = os.path.dirname(name) or folder
            files.append((os.path.join(folder, os.path.basename(name)), bool(hook)))
        found[match[1]] = files
    return found


def strays(files, arrows, returns):
    """A file that no earlier one calls, and a call back to an earlier one that `returns` does not list."""
    names = [name for name, _ in files]
    for at, (name, hook) in enumerate(files):
        if not os.path.exists(name):
            yield "%s is not there" % name
        if at and not hook and not any((before, name) in arrows for before in names[:at]):
            yield "%s: no file before it calls it" % name
        for before in names[:at]:
            if (name, before) in arrows and (name, before) not in returns:
                yield "%s goes back to %s: %s" % (name, before, " ".join(arrows[name, before][:4]))


def returns(path):
    """Lines "FILE -> FILE - why": calls back that stay."""
    with open(path, encoding="utf-8") as lines:
        return {(m[1], m[2]) for m in (re.match(r"(\S+) -> (\S+) - .{20,}", line) for line in lines) if m}


class Tap:
    def __init__(self):
        self.count, self.failed = 0, False

    def ok(self, passed, name, notes=()):
        self.count += 1
        self.failed |= not passed
        print("%sok %d - %s" % ("" if passed else "not ", self.count, name))
        for note in notes:
            print("# " + note)


def planted(tap, cc):
    """A tree with a circle, and with a call up that no include shows."""
    with tempfile.TemporaryDirectory() as root:
        texts = {
            "low/over/h.h": "",
            "low/under/a.c": '#include "low/over/h.h"\nvoid c(void); void a(void); void a(void) { c(); }',
            "low/over/b.c": "void a(void); void d(void); void b(void); void b(void) { a(); d(); }",
            "low/over/c.c": "void c(void); void c(void) {}",
            "low/over/d.c": "void b(void); void d(void); void d(void) { b(); }",
        }
        with open(os.path.join(root, "STYLE.md"), "w", encoding="utf-8") as style:
            style.write("## Folders\n| `low` | x | system headers |\n## Rooms\n| `low/under` | x | |\n| `low/over` | x | low/under |\n")
        private = os.path.join(root, "build", "low", "liblow.a.p")
        os.makedirs(private)
        for name, text in texts.items():
            file = os.path.join(root, name)
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file, "w", encoding="utf-8") as source:
                source.write(text + "\n")
            target = os.path.join(private, os.path.relpath(name, "low").replace("/", "_") + ".o")
            if name.endswith(".c"):
                subprocess.run(cc + ["-I" + root, "-c", file, "-o", target], check=True)
        made = objects(os.path.join(root, "build"), sources(root, ["low"]))
        arrows = calls(made)
        up = list(strays_up(arrows, root, "calls"))
        tap.ok(up == ["low/under/a.c calls low/over/c.c: c"], "a call up would be found", up)
        up = list(strays_up(includes(root, ["low"]), root, "includes"))
        tap.ok(up == ["low/under/a.c includes low/over/h.h: "], "an include up would be found", up)
        found = circles(arrows)
        tap.ok(found == [{"low/over/b.c", "low/over/d.c"}], "a circle of files would be found", [str(found)])
        tap.ok(list(complaints(found, [], made)) == ["a circle: low/over/b.c low/over/d.c"], "and that nobody listed it")
        path = [("low/over/b.c", False), ("low/over/c.c", False), ("low/over/d.c", False)]
        said = list(strays(path, arrows, set()))
        tap.ok(len(said) == 5 and said[-1].startswith("low/over/d.c goes back"), "a stray of a path would be found", said)
        stale = [({"tests/docs/circles.py", "tests/docs/structure.sh"}, "a reason of some length")]
        said = list(complaints([], stale, stale[0][0]))
        tap.ok(len(said) == 1 and "no circle" in said[0], "a line for what is no circle would be found", said)


def main():
    build, cc = sys.argv[1], sys.argv[2:]
    if not shutil.which("nm"):
        print("1..0 # SKIP nm is not installed")
        return
    tap = Tap()
    folders, rooms, _ = tables(".")
    order = list(rooms)
    odd = ["%s names %s" % (room, may) for at, room in enumerate(order) for may in rooms[room] if "/" in may and may not in order[:at]]
    tap.ok(len(folders) == 10 and not odd, "STYLE.md has a row for each folder, and each room's names those above it", odd)
    included = includes(".", folders)
    up = list(strays_up(included, ".", "includes"))
    tap.ok(not up, "no folder and no room includes what STYLE.md does not let it", up)
    of_rooms = circles(rooms_of(included))
    tap.ok(not of_rooms, "no circle of rooms that include each other", [" ".join(sorted(circle)) for circle in of_rooms])
    made = objects(build, sources(".", folders))
    arrows = calls(made)
    tap.ok(len(made) > 300, "%s has the objects of %d sources" % (build, len(made)))
    up = list(strays_up(arrows, ".", "calls"))
    tap.ok(not up, "no room calls what STYLE.md does not let it include", up)
    of_rooms = circles(rooms_of(arrows))
    tap.ok(not of_rooms, "no circle of rooms that call each other", [" ".join(sorted(circle)) for circle in of_rooms])
    odd = list(complaints(circles(arrows), list(listed("tests/docs/circles.txt")), made))
    tap.ok(not odd, "circles of files are those of circles.txt, each with its reason", odd)
    kept = returns("tests/docs/circles.txt")
    with open("docs/architecture.md", encoding="utf-8") as text:
        of_name = paths(text.read())
    tap.ok(set(of_name) == {"start", "gradient", "save", "request"}, "architecture.md lists four paths", sorted(of_name))
    for name, files in sorted(of_name.items()):
        odd = list(strays(files, arrows, kept))
        tap.ok(not odd, "the path of a %s: each file is called by one before it, none goes back" % name, odd)
    gone = ["%s -> %s" % pair for pair in sorted(kept - set(arrows))]
    tap.ok(not gone, "each return of circles.txt is called", gone)
    planted(tap, cc)
    print("1..%d" % tap.count)
    sys.exit(tap.failed)


main()
