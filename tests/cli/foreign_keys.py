#!/usr/bin/env python3
"""Every key of other trainers' pinned versions, imported absent, with its default and with another value.

   foreign_keys.py ZEROD KEYS.json JOB.md   (tests/reference/foreign_keys.py made the keys); prints what is wrong

A file without a key makes the job that a file with the key's default makes. Another value changes the job, is named in a
comment, or is refused by name."""
import json
import os
import re
import subprocess
import sys

zerod, fixture, reference = sys.argv[1:4]
# our defaults, as docs/job.md has them: a line that says one says nothing
ours = {f'{name} = {value.strip(chr(96))}' for name, value in
        re.findall(r'^\| `(\w+)` \| [^|]* \| ([^|,;]*?)(?:, [^|]*|; [^|]*)? \|', open(reference).read(), re.M)}
wrong = []
# How batches and messages are sized changes no number: zerod's own where the file says nothing.
OWN = re.compile(r'zero_optimization\.(.*bucket_size|.*_threshold|max_(live|reuse).*|sub_group_size)|aio\.'
                 r'|tf32|output_dir|fp16\.')


def put(tree, name, value):
    *outer, last = name.split('.')
    for part in outer:
        tree = tree.setdefault(part, {})
    tree[last] = value


def convert(kind, given, values):
    tree = json.loads(json.dumps(given))
    for name, value in values.items():
        put(tree, name, value)
    with open('k.json', 'w') as file:
        json.dump(tree, file, indent=1)
    done = subprocess.run([zerod, 'init', '--from-' + kind.split('-')[0], 'k.json', '--model', 'M', '--data', 'D.txt'],
                          capture_output=True, text=True)
    text = open('k.json').read().splitlines()
    places = [text[int(line) - 1] for line in re.findall(r'--> k.json:(\d+):', done.stderr)]
    return done.returncode, done.stdout, '\n'.join(re.findall('^error.*', done.stderr, re.M) + places)


def lines(job):
    return sorted(re.sub(r'\s+# .*', '', line) for line in job.splitlines() if line and not line.startswith('#'))


def is_told(name, text):
    last = name.split('.')[-1]
    return re.search(r'(?<![\w.])' + re.escape(name) + r'(?!\w)', text) or f'"{last}":' in text


for kind, of in json.load(open(fixture)).items():
    given, keys = of['given'], of['keys']
    names = [n for n in keys if n not in given]
    code, absent, err = convert(kind, given, {})
    if code:
        wrong.append(f'{kind}: nothing but what it needs is refused: {err}')
        continue
    code, full, err = convert(kind, given, {n: keys[n][0] for n in names})
    if code:
        wrong.append(f'{kind}: its defaults are refused: {err}')
    own = {n.split('.')[-1] for n in names if OWN.match(n)}
    for sign, has, lacks in (('absent', absent, full), ('default', full, absent)):
        for line in set(lines(has)) - set(lines(lacks)) if not code else ():
            if line not in ours and not line.startswith('[') and not any(n in line for n in own):
                wrong.append(f'{kind}: {sign} alone gives {line}')
    # other values: those that are refused are left out until there is a job
    left = list(names)
    for _ in range(20):
        code, job, err = convert(kind, given, {n: keys[n][1] for n in left})
        if code == 0:
            break
        refused = [n for n in left if is_told(n, err)]
        if not refused:
            wrong.append(f'{kind}: an error names no key: {err}')
            break
        left = [n for n in left if n not in refused]
    wrong += [f'{kind}: {n} = {keys[n][1]} is not told' for n in left if code == 0 and not is_told(n, job)]
print('\n'.join(wrong))
sys.exit(1 if wrong else 0)
