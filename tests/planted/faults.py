#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planted faults: reads their files, checks them against a tree, and plants one.

  faults.py check [ROOT]        every fault's old text occurs exactly once in its file of the tree ROOT (default: this one)
  faults.py list                a line per fault: number, name, kind, file, the tests named to find it
  faults.py tests NN            the tests that should find fault NN first
  faults.py plant ROOT NN       writes fault NN into the tree ROOT
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
FIELDS = ("file", "kind", "origin", "breaks", "tests")
KINDS = ("adapters", "arithmetic", "bits", "chat", "checkpoints", "collectives", "comparisons", "data", "left out",
         "logic", "optimizers", "parsers", "plans", "restarts", "tokenizers", "waits")


class Fault:
    """One planted fault: NN_name.fault has its fields, then the old text and the new one."""

    def __init__(self, path):
        self.path = path
        self.number, _, self.name = path.stem.partition("_")
        match = re.fullmatch(r"((?:\w+: [^\n]+\n)+)--- old\n((?:.*\n)+)--- new\n((?:.*\n)*)--- end\n", path.read_text())
        if not match or not re.fullmatch(r"\d\d", self.number):
            raise ValueError(f"{path.name}: is no fault (README.md says what its lines are)")
        self.old, self.new = match[2], match[3]
        fields = dict(line.split(": ", 1) for line in match[1].splitlines())
        if tuple(fields) != FIELDS:
            raise ValueError(f"{path.name}: has the fields {', '.join(fields)}, not {', '.join(FIELDS)}")
        self.file, self.kind, self.origin, self.breaks = (fields[name] for name in FIELDS[:4])
        self.tests = fields["tests"].split()
        if self.kind not in KINDS:
            raise ValueError(f"{path.name}: '{self.kind}' is none of the kinds {', '.join(KINDS)}")


def read_all(folder=HERE):
    return [Fault(path) for path in sorted(folder.glob("*.fault"))]


def find(number):
    for fault in read_all():
        if int(fault.number) == int(number):
            return fault
    raise ValueError(f"there is no fault {number}")


def sources(root):
    return sorted(path for folder in ("src", "modules") for path in (root / folder).rglob("*") if path.suffix in (".cpp", ".hpp"))


def problem_of(fault, root):
    """What keeps `fault` from being planted in the tree `root`; nothing if it can be."""
    path = root / fault.file
    count = path.read_text().count(fault.old) if path.is_file() else 0
    if fault.old == fault.new or not fault.old.strip():
        return "changes nothing"
    if count > 1:
        return f"its old text is in {fault.file} {count} times. Take more lines around it"
    if count == 0:
        moved = [str(path.relative_to(root)) for path in sources(root) if fault.old in path.read_text()]
        return f"its old text is no longer in {fault.file}" + (f", but in {', '.join(moved)}" if moved else "")
    return None


def check(root, folder=HERE):
    faults = read_all(folder)
    problems = [f"{fault.path.name}: {problem}" for fault in faults if (problem := problem_of(fault, root))]
    numbers = [fault.number for fault in faults]
    problems += [f"{number}: is the number of two faults" for number in sorted(set(numbers)) if numbers.count(number) > 1]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(faults) - len(problems)} of {len(faults)} faults can be planted")
    return 1 if problems or not faults else 0


def plant(root, fault):
    problem = problem_of(fault, root)
    if problem:
        raise ValueError(f"{fault.path.name}: {problem}")
    path = root / fault.file
    path.write_text(path.read_text().replace(fault.old, fault.new))


def main(arguments):
    command, rest = (arguments or ["help"])[0], arguments[1:]
    if command == "check" and len(rest) <= 2:
        root = pathlib.Path(rest[0]) if rest else HERE.parent.parent
        return check(root, pathlib.Path(rest[1]) if len(rest) == 2 else HERE)
    if command == "list" and not rest:
        for fault in read_all():
            print(fault.number, fault.name, fault.kind.replace(" ", "-"), fault.file, *fault.tests)
    elif command == "tests" and len(rest) == 1:
        print(*find(rest[0]).tests)
    elif command == "plant" and len(rest) == 2:
        plant(pathlib.Path(rest[0]), find(rest[1]))
        print(find(rest[1]).file)
    else:
        print(__doc__, file=sys.stderr)
        return 64
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")
