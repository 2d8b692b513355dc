#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/run.sh asks of ctest's own files.

  ctest_facts.py targets BUILD LIST   the programs below BUILD that the tests of LIST start, as ninja's targets
  ctest_facts.py times LIST LOG       seconds and numbers of tests by folder and label, and the slowest tests

LIST is written by ctest --show-only=json-v1, LOG by ctest --output-log.
"""
import json
import os
import re
import sys


def read_tests(path):
    with open(path) as file:
        return json.load(file)["tests"]


def labels_of(test):
    for item in test.get("properties", []):
        if item["name"] == "LABELS":
            return item["value"]
    return []


def print_targets(build, path):
    build = os.path.realpath(build)
    targets = set()
    for test in read_tests(path):
        for word in test.get("command", []):
            program = os.path.realpath(word)
            if program.startswith(build + "/") and os.path.splitext(program)[1] == "":
                targets.add(os.path.relpath(program, build))
    print("\n".join(sorted(targets)))


def read_seconds(path):
    seconds = {}
    with open(path, errors="replace") as file:
        for line in file:
            found = re.match(r" *\d+/\d+ Test +#\d+: (\S+) \.*.* +([\d.]+) sec", line)
            if found:
                seconds[found[1]] = float(found[2])
    return seconds


def print_rows(title, rows):
    print(f"  {title:<24} {'tests':>6} {'seconds':>9}")
    for name, of_row in sorted(rows.items(), key=lambda row: -sum(row[1])):
        print(f"  {name:<24} {len(of_row):>6} {sum(of_row):>9.0f}")


def print_times(path, log):
    seconds = read_seconds(log)
    by_folder, by_label = {}, {}
    for test in read_tests(path):
        if test["name"] not in seconds:
            continue
        took = seconds[test["name"]]
        by_folder.setdefault(test["name"].split("/")[0], []).append(took)
        for label in labels_of(test):
            by_label.setdefault(label, []).append(took)
    print_rows("folder", by_folder)
    print_rows("label", by_label)
    print("  the slowest tests")
    for name, took in sorted(seconds.items(), key=lambda item: -item[1])[:12]:
        print(f"  {name:<31} {took:>9.0f}")


if __name__ == "__main__":
    {"targets": print_targets, "times": print_times}[sys.argv[1]](*sys.argv[2:])
