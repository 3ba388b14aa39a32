#!/usr/bin/env python3
"""unicode_tables.py RANGES: the tables of utf8.h as C, from unicode_ranges.txt. Those with a name of two letters are
general categories and become one table."""
import sys

print('#include "data/tokenizer/utf8.h"')
tables = {"categories": []}
for line in open(sys.argv[1], encoding="ascii"):
    line = line.partition("#")[0].strip()
    if line.endswith(":"):
        name = line[:-1]
        rows = tables["categories"] if len(name) == 2 else tables.setdefault(name, [])
    elif line:
        for item in line.split():
            begin, _, end = item.partition("-")
            rows.append((int(begin, 16), int(end or begin, 16), name if len(name) == 2 else ""))
for name, rows in tables.items():
    rows = "".join(f'    {{{begin:#x}, {end:#x}, "{category}"}},\n' for begin, end, category in sorted(rows))
    print(f"static const struct unicode_range {name}[] = {{\n{rows}}};")
    print(f"const struct unicode_table unicode_{name} = {{{name}, sizeof {name} / sizeof *{name}}};")
