#!/usr/bin/env python3
"""unicode_tables.py RANGES: the tables of unicode.h as C, from unicode_ranges.txt."""
import sys

print('#include "data/tokenizer/unicode.h"')
tables = {}
for line in open(sys.argv[1], encoding="ascii"):
    line = line.partition("#")[0].strip()
    if line.endswith(":"):
        ranges = tables.setdefault(line[:-1], [])
    elif line:
        ranges += (item.partition("-") for item in line.split())
for name, ranges in tables.items():
    rows = "".join(f"    {{0x{begin}, 0x{end or begin}}},\n" for begin, _, end in ranges)
    print(f"static const struct unicode_range {name}[] = {{\n{rows}}};")
    print(f"const struct unicode_table unicode_{name} = {{{name}, {len(ranges)}}};")
