#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws faults from src and modules: the same ones for the same seed, tree and rejected.txt.

  draw.py SEED N [--build FOLDER] [--write FIRST]

A draw takes a folder of src or modules, then a mutation operator, then one of its places there. Left out are places in
comments, strings, preprocessor lines, static_assert, messages for people, and files that only a build with CUDA compiles.
A draw that rejected.txt lists, with its reason, does not count. --build names a configured build folder: a draw that does
not compile with its options is printed as a line for rejected.txt. --write writes the draws as faults from number FIRST
on; what they break and which tests find them is for a person to say.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import faults

ROOT = faults.HERE.parent.parent
# Operator of a mutation -> its kind, and what becomes of its places.
SWAPS = {
    "comparison": ("comparisons", {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == "}),
    "sign": ("arithmetic", {" + ": " - ", " - ": " + ", " += ": " -= ", " -= ": " += ", " * ": " + ", " / ": " * "}),
    "bound": ("arithmetic", {" + 1": "", " - 1": "", " = 0;": " = 1;", " = 1;": " = 0;"}),
    "logic": ("logic", {" && ": " || ", " || ": " && "}),
}
CALL = re.compile(r"(?m)^ +[A-Za-z_][\w:.]*(?:->[\w.]+)?\([^\n]*\);\n")
WAIT = re.compile(r"\b(wait|synchronize|join|fence|barrier|flush|fsync|sync)\w*\(", re.I)
HIDDEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^ *#[^\n]*|static_assert\(.*?\);', re.S | re.M)
# Statements whose only use is what somebody reads.
MESSAGES = re.compile(r"(?:log|say|print|warn|note|throw|Error|problem|describe|fmt::|out <<|reserve)")


def masked(text):
    """`text` with blanks in the place of what is not drawn from, its lines and lengths kept."""
    return HIDDEN.sub(lambda match: re.sub(r"[^\n]", "\0", match[0]), text)


def places(path):
    """The mutations of a file: (operator, kind, offset, old, new)."""
    text = path.read_text()
    seen = masked(text)
    found = []
    for operator, (kind, swaps) in SWAPS.items():
        for old, new in swaps.items():
            for match in re.finditer(re.escape(old) + (r"(?![\w.])" if old[-1].isdigit() else ""), seen):
                found.append((operator, kind, match.start(), old, new))
    for match in CALL.finditer(seen):
        before = text[:match.start()].rstrip()
        if before and before[-1] in ";{}":
            waits = WAIT.search(match[0])
            found.append(("wait" if waits else "statement", "waits" if waits else "left out", match.start(), match[0], ""))
    return [place for place in found if not MESSAGES.search(line_at(text, place[2]))]


def line_at(text, offset):
    start = text.rfind("\n", 0, offset) + 1
    return text[start:text.find("\n", offset) + 1]


def in_context(text, offset, old, new):
    """The whole lines around a mutation, as few as occur once, before and after it."""
    first = text.rfind("\n", 0, offset) + 1
    last = text.find("\n", offset + len(old) - 1) + 1
    while text.count(text[first:last]) > 1 or (not new and last - offset == len(old) and first == offset):
        first = text.rfind("\n", 0, max(first - 1, 0)) + 1
        last = text.find("\n", last) + 1 or len(text)
    before = text[first:last]
    return before, before[:offset - first] + new + before[offset - first + len(old):]


def pool():
    """Folder -> operator -> its mutations, in a fixed order."""
    result = {}
    for path in faults.sources(ROOT):
        name = str(path.relative_to(ROOT))
        if re.search(r"_cuda\.|/nccl/|/cuda", name):
            continue
        folder = "/".join(name.split("/")[:2])
        for place in places(path):
            result.setdefault(folder, {}).setdefault(place[0], []).append((name, *place[1:]))
    return result


def key(name, old, new):
    """A draw as rejected.txt names it: its file, and the lines that change."""
    old, new = old.splitlines(), new.splitlines()
    gone = [line.strip() for line in old if line not in new]
    come = [line.strip() for line in new if line not in old]
    return f"{name}: {' '.join(gone)} -> {' '.join(come)}"


def compiler_of(name, build):
    """The command that compiles a file, without what it writes, and a file to compile for a header."""
    source = name
    commands = json.loads((build / "compile_commands.json").read_text())
    if name.endswith(".hpp"):
        include = name.split("/", 1)[1]
        users = [path for path in faults.sources(ROOT) if path.suffix == ".cpp" and f'"{include}"' in path.read_text()]
        users.sort(key=lambda path: (str(path.parent) != str((ROOT / name).parent), path.stat().st_size))
        if not users:
            return None, None
        source = str(users[0].relative_to(ROOT))
    for command in commands:
        unit = pathlib.Path(command["file"])
        if str(unit) == str(ROOT / source) or ("unity" in unit.name and unit.is_file() and f'/{source}"' in unit.read_text()):
            words = command["command"].replace("\\", "").split()
            words = words[words.index("-E") + 1:] if "-E" in words else words
            words = [word.replace('"', "") for word in words if "CCACHE" not in word and "ccache" not in word]
            return words[:words.index("-o")], source
    return None, None


def compiles(name, text, build):
    """Whether a file with this text compiles, by itself or, for a header, in a file that includes it."""
    command, source = compiler_of(name, build)
    if not command:
        return False
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / name
        copy.parent.mkdir(parents=True)
        copy.write_text(text)
        if source != name:
            # Includes in quotes look into their own folder first, so the including file travels, too.
            (copy.parent / "user.cpp").write_text((ROOT / source).read_text())
            source = str(pathlib.Path(name).parent / "user.cpp")
        roots = [f"-I{folder}/src", f"-I{folder}/modules"]
        command = [word for word in command if word != "-Winvalid-pch"]
        run = subprocess.run([command[0], *roots, *command[1:], f"-I{ROOT}/src", f"-I{(ROOT / name).parent}", "-O0", "-fsyntax-only",
                              f"{folder}/{source}"], cwd=build, capture_output=True, text=True, check=False)
        if run.returncode:
            print(f"# {next((line for line in run.stderr.splitlines() if 'error' in line), run.stderr[:200])}")
        return run.returncode == 0


def draw(seed, count, build):
    stock, random_numbers = pool(), random.Random(seed)
    rejected = {line.rsplit(" | ", 1)[0] for line in (faults.HERE / "rejected.txt").read_text().splitlines() if " | " in line}
    drawn, folders = [], sorted(stock)
    while len(drawn) < count:
        operators = stock[random_numbers.choice(folders)]
        name, kind, offset, old, new = random_numbers.choice(operators[random_numbers.choice(sorted(operators))])
        text = (ROOT / name).read_text()
        before, after = in_context(text, offset, old, new)
        this = key(name, before, after)
        if this in rejected or this in [other[-1] for other in drawn]:
            continue
        if build and not compiles(name, text.replace(before, after), build):
            print(f"{this} | compile: does not compile", flush=True)
            continue
        drawn.append((name, kind, before, after, this))
    return drawn


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--write", type=int)
    options = parser.parse_args()
    for index, (name, kind, old, new, this) in enumerate(draw(options.seed, options.count, options.build)):
        print(this)
        if options.write is not None:
            path = faults.HERE / f"{options.write + index:02}_{pathlib.Path(name).stem}.fault"
            path.write_text(f"file: {name}\nkind: {kind}\norigin: drawn with seed {options.seed}\nbreaks: ?\ntests: ?\n"
                            f"--- old\n{old}--- new\n{new}--- end\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
