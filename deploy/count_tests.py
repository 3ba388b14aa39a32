"""count_tests.py TESTLOG.json...: add up meson's test logs as "PASSED FAILED SKIPPED".
count_tests.py --failures TESTLOG.json...: print what the tests that failed said on their standard output, which meson
keeps to itself when a test speaks TAP.

count_tests.py --retries TESTLOG.json...: print what was tried again, a line each: tests of failures on a machine that does
other things say so in a comment, "# again: what: why".

A test that speaks TAP counts once for each of its lines, any other once. One that ended badly without a failing line
(crash, timeout, fewer tests than its plan) counts one failure more."""

import json
import re
import sys

LINE = re.compile(r"^\s*(not )?ok\b(.*)$", re.MULTILINE)
AGAIN = re.compile(r"^\s*# again: (.*)$", re.MULTILINE)
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


def tests(paths):
    for path in paths:
        with open(path, encoding="utf-8") as log:
            yield from map(json.loads, log)


def print_failures(paths):
    for test in tests(paths):
        if test["result"] in BAD:
            lines = (test.get("stdout") or "").splitlines()
            lines = [line for line in lines if not re.match(r"\s*(ok\b|#)", line)]
            print(f"-- {test['name']}: {test['result']}", *lines[-100:], sep="\n")


def print_retries(paths):
    for test in tests(paths):
        for said in AGAIN.findall(test.get("stdout") or ""):
            print(f"{test['name']}: {said}")


def main():
    if sys.argv[1:2] == ["--retries"]:
        print_retries(sys.argv[2:])
        return
    if sys.argv[1:2] == ["--failures"]:
        print_failures(sys.argv[2:])
        return
    total = [0, 0, 0]
    for test in tests(sys.argv[1:]):
        total = [a + b for a, b in zip(total, count(test))]
    print(*total)


main()
