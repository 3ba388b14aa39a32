#!/usr/bin/env python3
"""Holds zerod's renderer against transformers: 2,000 conversations with every template of a folder.

    ninja -C build tests/data/jinja_corpus
    python tests/reference/compare_chat_templates.py build/tests/data/jinja_corpus [FOLDER] [--count N]

FOLDER: templates NAME.jinja, by default those that the installed package trl has. Texts, spans of {% generation %} and
what raise_exception says must be equal; where Python refuses, zerod must."""

import argparse
import collections
import os
import subprocess
import sys
import tempfile

import chat_corpus
import chat_render


def shipped():
    import trl
    return os.path.join(os.path.dirname(trl.__file__), "chat_templates")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    folder = args.folder or shipped()
    rows = chat_corpus.corpus(args.count)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as f:
        f.writelines(chat_render.dump(row) + "\n" for row in rows)
        f.flush()
        out = subprocess.run([args.program, f.name, folder], stdout=subprocess.PIPE, check=True, text=True).stdout
        ours = {}
        for line in out.splitlines():
            name, row, digest = line.split(" ", 2)
            ours[name, int(row)] = digest
        kinds, wrong, count = collections.Counter(), [], 0
        for name in sorted(n for n in os.listdir(folder) if n.endswith(".jinja") and args.only in n):
            with open(os.path.join(folder, name), encoding="utf-8") as t:
                template = t.read()
            theirs = [chat_render.render(template, row) for row in rows]
            digests = [chat_render.digest(t) for t in theirs]
            kinds.update(t[0] for t in theirs)
            bad = [i for i, d in enumerate(digests) if ours.get((name, i)) != d]
            wrong += [(name, i) for i in bad]
            count += 1
            if bad:
                show = subprocess.run([args.program, f.name, folder, name, str(bad[0])], stdout=subprocess.PIPE).stdout
                print("%s: %d differ, first row %d\n  transformers: %r\n  zerod:        %r"
                      % (name, len(bad), bad[0], theirs[bad[0]][1:], show.decode(errors="replace")))
        print("%d templates, %d renderings: %s; %d differ" % (count, sum(kinds.values()), dict(kinds), len(wrong)))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
