#!/usr/bin/env python3
"""Is a text OpenMetrics 1.0, by the rules that it is stricter in than the older format (which promtool checks), and does it
tell the same as METRICS, in that format?

    openmetrics.py TEXT METRICS     prints what is wrong"""
import re
import sys

SAMPLE = re.compile(r'(\w+)((?:\{\w+="(?:[^"\\]|\\[\\"n])*"(?:,\w+="(?:[^"\\]|\\[\\"n])*")*\})?) (NaN|[+-]Inf|-?\d[\d.e+-]*)')
ENDS = {"gauge": [""], "counter": ["_total"], "info": ["_info"], "histogram": ["_bucket", "_sum", "_count"]}
wrong, samples, families, family = [], {}, {}, None
lines = open(sys.argv[1], newline="\n").read().split("\n")
if lines[-2:] != ["# EOF", ""]:
    wrong.append("it does not end with # EOF")
for line in lines[:-2]:
    if line.startswith("# "):
        _, key, name, text = line.split(" ", 3)
        if name != family and name in families:
            wrong.append(f"{name} comes twice")
        family = name
        if key in families.setdefault(name, {}) or (key == "UNIT" and not name.endswith("_" + text)):
            wrong.append(line)
        families[name][key] = text
        continue
    sample = SAMPLE.fullmatch(line)
    ends = ENDS.get(families.get(family, {}).get("TYPE"), [])
    if not sample or sample[1] not in [family + end for end in ends] or "HELP" not in families[family] or sample[1] + sample[2] in samples:
        wrong.append(line)
        continue
    bound = re.search(r'le="([^"]*)"', sample[2])
    if bound and not re.search(r"[.eI]", bound[1]):
        wrong.append(f"{line}: the bound is not a canonical number")
    samples[sample[1] + sample[2]] = sample[3]
older = dict(line.rsplit(" ", 1) for line in open(sys.argv[2], newline="\n").read().split("\n") if line and line[0] != "#")
changing = ("process_", "zerod_report_timestamp", "zerod_job_state_timestamp")
wrong += [f"not the same in both: {name}" for name, _ in samples.items() ^ older.items() if not name.startswith(changing)]
print("\n".join(wrong))
sys.exit(1 if wrong or len(samples) < 100 else 0)
