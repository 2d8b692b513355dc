#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Templates of every kind of behaviour (kinds/), conversations of every shape, and what Python's Jinja makes of them.

    python3 tests/golden/templates/make_kinds.py > tests/golden/templates/kinds.json

What is trained stands in ‹ ›: as the template marks it, else as texts alone show (tests/modules/templates/derived_masks.py).
"""
import json
import pathlib
import platform
import random
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "modules/templates"))
import derived_masks
from derived_masks import Chat, jinja2
from random_chats import SHAPES, with_texts

# At which generation stops, tried with and without.
ENDS = {"channels": ["<|return|>", "<|call|>"], "next_role": ["<|user|>", "<|observation|>"], "two_ends": ["<|end|>"],
        "thinks": ["<|end|>"], "words": ["<EOS>"]}


def appended(chat, talk, text, ends):
    """The text with the next turn's token behind an answer that nothing else ends."""
    last = len(talk["messages"]) - 1
    role = "tool" if talk["messages"][last].get("tool_calls") else "user"
    longer = chat.write(dict(talk, messages=talk["messages"] + [{"role": role, "content": f"⟦{last + 1}·next·{last + 1}⟧"}]))
    answer = derived_masks.answers(chat, talk, text, ends)[-1:]
    if not longer or not answer or answer[0].i != last or answer[0].ends_at != answer[0].end or not longer[0].startswith(text):
        return text
    behind = longer[0][len(text):]
    return text + next((behind[b:e] for b, e in chat.places(behind) if b == 0), "")


def written(chat, talk, ends):
    expected = chat.write(talk)
    if expected is None:
        return None
    text, marks = expected
    wanted = [(begin, end) for begin, end in marks if begin < end]
    if "- generation" in chat.text:
        answers = [m for m in talk["messages"] if m["role"] == "assistant"]
        wanted = [mark for mark, m in zip(wanted, answers) if m.get("weight") != 0]
    else:
        text = appended(chat, talk, text, ends)
        wanted = [a.trained() for a in derived_masks.answers(chat, talk, text, ends)
                  if talk["messages"][a.i].get("weight") != 0]
    for begin, end in reversed([(b, e) for b, e in wanted if b < e]):
        text = text[:begin] + "‹" + text[begin:end] + "›" + text[end:]
    return text


def one_line(value):
    return json.dumps(value, ensure_ascii=False)


def main():
    draw = random.Random(42)
    talks = {shape: make(draw) for shape, make in SHAPES.items()}
    templates = {}
    for file in sorted((HERE / "kinds").glob("*.jinja")):
        chat = Chat(file.read_text())
        cases = []
        for ends in [[], ENDS[file.stem]] if file.stem in ENDS else [[]]:
            for shape, talk in talks.items():
                text = written(chat, talk, ends)
                cases.append([shape, ends, written(chat, with_texts(talk), ends) if text is None else text])
        templates[file.stem] = {"special": chat.special, "cases": cases}
    versions = {"python": platform.python_version(), "jinja2": jinja2.__version__}
    print("{" + f'"made by": "make_kinds.py", "versions": {one_line(versions)},\n"conversations": {{')
    print(",\n".join(f"{one_line(shape)}: {one_line(talk)}" for shape, talk in talks.items()))
    print('},\n"templates": {')
    print(",\n".join(f'{one_line(name)}: {{"special": {one_line(kind["special"])}, "cases": [\n' +
                     ",\n".join(map(one_line, kind["cases"])) + "]}" for name, kind in templates.items()))
    print("}}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
