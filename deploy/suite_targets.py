"""suite_targets.py FOLDER SUITE...: what ninja has to build in FOLDER so that the tests of these suites can run."""

import json
import os
import sys


def main():
    folder, suites = sys.argv[1], set(sys.argv[2:])

    def read(name):
        with open(os.path.join(folder, "meson-info", "intro-%s.json" % name), encoding="utf-8") as file:
            return json.load(file)

    needed, seen = set(), set()
    for test in read("tests"):
        of = suites & {suite.split(":")[-1] for suite in test["suite"]}  # "zerod:unit"
        if of:
            seen |= of
            needed.update(test["depends"])
    if seen != suites:
        sys.exit("suite_targets.py: no test of %s has the suite %s" % (folder, ", ".join(sorted(suites - seen))))
    for target in read("targets"):
        if target["id"] in needed:
            for path in target["filename"]:
                print(os.path.relpath(path, os.path.realpath(folder)))


main()
