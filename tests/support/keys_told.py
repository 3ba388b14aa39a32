#!/usr/bin/env python3
"""Every key of another trainer's file is named in what `zerod init` said of it.

   keys_told.py FILE TEXT...     JSON, or YAML by indentation; prints what is not named"""
import json
import re
import sys


def leaves(value, path):
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, path + [key])
    else:
        yield path


def yaml_keys(text):
    for line in text.splitlines():
        found = re.match(r'([A-Za-z_]\w*):', line)
        if found:
            yield [found.group(1)]


text = open(sys.argv[1]).read()
paths = list(yaml_keys(text)) if '.y' in sys.argv[1][-5:] else list(leaves(json.loads(text), []))
said = ''.join(open(name).read() for name in sys.argv[2:])
missing = []
for path in paths:
    names = ['.'.join(path[:n]) for n in range(1, len(path) + 1)]
    if not any(re.search(r'(?<![\w.])' + re.escape(name) + r'(?![\w])', said) for name in names):
        missing.append('.'.join(path))
if missing:
    print('not told: ' + ', '.join(missing))
sys.exit(1 if missing or not paths else 0)
