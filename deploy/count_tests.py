"""count_tests.py TESTLOG.json...: add up meson's test logs as "PASSED FAILED SKIPPED".

A test that speaks TAP counts once for each of its lines, any other once. One that ended badly without a failing line
(crash, timeout, fewer tests than its plan) counts one failure more."""

import json
import re
import sys

LINE = re.compile(r"^\s*(not )?ok\b(.*)$", re.MULTILINE)
BAD = ("FAIL", "ERROR", "TIMEOUT", "INTERRUPT", "UNEXPECTEDPASS")


def count(test):
    passed = failed = skipped = 0
    for bad, rest in LINE.findall(test.get("stdout") or ""):
        if re.search(r"#\s*(skip|todo)", rest, re.IGNORECASE):
            skipped += 1
        elif bad:
            failed += 1
        else:
            passed += 1
    if test["result"] in BAD and failed == 0:
        failed = 1
    elif passed + failed + skipped == 0:
        skipped, passed = (1, 0) if test["result"] == "SKIP" else (0, 1)
    return passed, failed, skipped


def main():
    total = [0, 0, 0]
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as log:
            for line in log:
                total = [a + b for a, b in zip(total, count(json.loads(line)))]
    print(*total)


main()
