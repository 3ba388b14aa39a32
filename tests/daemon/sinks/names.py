#!/usr/bin/env python3
"""Names of metrics, and their labels, that the files of deploy/ and docs/ use are those of the program, and the reverse.

    names.py METRICS dashboard|alerts|docs SOURCE    METRICS: text 0.0.4; prints what is wrong"""
import json
import re
import sys

metrics, what, source = sys.argv[1:]
wrong = []
labels, families = {}, []
for line in open(metrics):
    sample = re.match(r"(\w+)(?:\{(.*)\})? ", line)
    if line.startswith("# TYPE "):
        families.append(line.split()[2])
    elif sample and sample[1] not in labels:
        labels[sample[1]] = set(re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', sample[2] or ""))


def names_in(query):
    """How many metrics a query, or a whole file, names; instance and job are labels that the server adds."""
    count = 0
    for name, selector in re.findall(r"\b(zerod_\w+)(\{[^}]*\})?", query):
        if name == "zerod_job":
            continue
        count += 1
        unknown = set(re.findall(r"(\w+)\s*[=!]~?\s*\"", selector)) - {"instance", "job"} - labels.get(name, set())
        if name not in labels:
            wrong.append(f"no metric {name}: {query[:200]}")
        elif unknown:
            wrong.append(f"{name} has no label {unknown}: {query[:200]}")
    return count


if what == "dashboard":
    panels = json.load(open(f"{source}/deploy/grafana/zerod.json"))["panels"]
    queries = [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]
    wrong += [f"{title}: {query}" for title, query in queries if not names_in(query) or 'zerod_job="$zerod_job"' not in query]
    wrong += [str(panel)[:200] for panel in panels if not panel["title"] or not panel["targets"]]
    if len(panels) <= 10:
        wrong.append(f"{len(panels)} panels")
elif what == "alerts":
    for name in ("rules", "test"):
        if names_in(open(f"{source}/deploy/prometheus/zerod.{name}.yml").read()) < 10:
            wrong.append(f"zerod.{name}.yml names few metrics")
else:
    page = open(f"{source}/docs/metrics.md").read()
    wrong += [f"docs/metrics.md has no {family}" for family in families if f"`{family}`" not in page]
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
