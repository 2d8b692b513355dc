#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares conversations that the program writes by models' chat templates with what Python's Jinja writes.

    compare_chats.py --against build/tests/write_conversations [FOLDER|FILE.json ...] [--count 40] [--seed 1]

FOLDER holds NAME.jinja and, for some, NAME_training.jinja, which marks answers ({% generation %}); FILE.json a list of
"cases" with "template_str". Without any, the published templates of $FINETUNE_MATERIAL, else of shared/material next to
the sources. Of each template a conversation of every shape and random ones, COUNT together, are written: texts and refusals
are to be equal, everything that messages say is to be text, and what is trained is to be what texts alone show
(derived_masks.py) and what the marked variant marks. Prints a line for each template, and the first difference of each
kind. Exit code 1 if there is any or a shape was equal in no template, 77 if nothing can be compared here.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys

import derived_masks
from derived_masks import BEGIN, END, Chat
from random_chats import SHAPES, talks, with_text, with_texts

# At which generation stops, as these models' generation_config.json says; each is tried with and without.
ENDS = {
    "cohere": ["<|END_OF_TURN_TOKEN|>"], "deepseekv3": ["<EOS>"], "gemma": ["<EOS>", "<end_of_turn>"],
    "gemma3": ["<EOS>", "<end_of_turn>"], "glm4moe": ["<|user|>", "<|observation|>", "<EOS>"],
    "gptoss": ["<|return|>", "<|call|>", "<EOS>"], "llama3": ["<|eot_id|>", "<EOS>"], "llama3_1": ["<|eot_id|>", "<EOS>"],
    "llama3_2": ["<|eot_id|>", "<EOS>"], "phi3": ["<|end|>", "<EOS>"], "qwen3": ["<|im_end|>", "<EOS>"],
}

# Names that tokenizers' files have and templates read, with special tokens that templates do not write out.
KWARGS = {"ai-sage/GigaChat-20B-A3B-instruct": {"additional_special_tokens": ["<|role_sep|>", "<|message_sep|>", "[", "]"]}}

# What marked variants mark beside the answer: the beginning that the prompt for it writes, too, and what follows the
# tokens that end it. Nothing but one of these texts may stand there.
BEFORE = {
    # <think> follows in prompts alone; it writes nothing before further calls.
    "deepseekv3": ["", "<｜Assistant｜>", "<｜tool▁outputs▁end｜>"],
    "glm4moe": ["", "\n<think>", "\n<think></think>"],  # of prompts with enable_thinking = false
    "gptoss": ["<|start|>assistant"],
    "nemotron_3_nano": ["<think>", "<think>\n", "<think></think>"],  # the prompt opens thoughts, the variant trains that, too
    "qwen2_5": ["", "\n"],  # the line's end behind the role, where the answer says something
    "qwen3": ["", "<think>\n", "<think>\n\n</think>\n\n"],  # of prompts with enable_thinking = false
    "qwen3_5_nothink": ["", "<think>\n", "<think>\n\n</think>\n\n"],
    "qwen3_5_think": ["", "<think>\n", "<think>\n\n</think>\n\n"],
}
# Variants that write another text: thoughts in earlier turns, too; an end behind the last answer, if its weight is 0, too.
OTHER_TEXT = ["glm4moe", "qwen3", "qwen3_5_nothink", "qwen3_5_think"]
BEHIND = {"phi3": ["", "\n<EOS>"]}  # which Phi 3 writes at the very end, behind a line's end

class Program:
    def __init__(self, command):
        self.process = subprocess.Popen([command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def write(self, chat, talk, ends):
        question = dict(talk, template=chat.text, kwargs=chat.kwargs | talk.get("kwargs", {}), bos="<BOS>", eos="<EOS>",
                        special=chat.special, ends=ends)
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def in_characters(text, ranges):
    """Ranges of bytes as ranges of characters; those that touch are one."""
    at, places = 0, {0: 0}
    for i, character in enumerate(text):
        at += len(character.encode())
        places[at] = i + 1
    return joined((places[begin], places[end]) for begin, end in ranges)


def joined(ranges):
    made = []
    for begin, end in ranges:
        if begin < end and made and made[-1][1] == begin:
            made[-1] = (made[-1][0], end)
        elif begin < end:
            made.append((begin, end))
    return made


def shown(text, ranges):
    for begin, end in reversed(ranges):
        text = text[:begin] + "«" + text[begin:end] + "»" + text[end:]
    return text


def is_all_text(text, said):
    """Whether whatever a message says is text, none of it markup."""
    begins, ends = list(BEGIN.finditer(text)), list(END.finditer(text))
    return len(begins) == len(ends) and all(
        any(b <= begin.start() and end.end() <= e for b, e in said) for begin, end in zip(begins, ends))


def marked_otherwise(name, text, answers, marks):
    """The first answer that the variant marks in another way than BEFORE and BEHIND say; None if there is none."""
    marks = joined(marks)
    if len(marks) != len(answers):
        return "number of marks"
    for answer, (begin, end) in zip(answers, marks):
        before, behind = text[begin:answer.begin], text[answer.end:end]
        if begin > answer.begin or end < answer.end or before not in BEFORE.get(name, [""]) or \
                behind.rstrip("\n") not in BEHIND.get(name, [""]):
            return f"{shown(text, [(begin, end)])!r}: before {before!r}, behind {behind!r}"
    return None


def is_in_parts(talk):
    return any(isinstance(message["content"], list) for message in talk["messages"])


class Comparison:
    """Of one template."""

    def __init__(self, name, chat, variant, program):
        self.name, self.chat, self.variant, self.program = name, chat, variant, program
        self.counts, self.shapes, self.bad = collections.Counter(), collections.Counter(), {}

    def differs(self, kind, *what):
        self.counts["DIFFERENT " + kind] += 1
        self.bad.setdefault(kind, what)

    def compare(self, shape, talk, ends):
        # Python has one kind of value: the first that the template writes, and that it writes as the program does.
        given = talk
        made = self.program.write(self.chat, talk, ends)
        for kind in (lambda same: same, with_text, with_texts):
            expected, known = self.chat.write(kind(talk)), kind(talk)
            if expected and (not is_in_parts(known) or made.get("text", "").startswith(expected[0])):
                talk = known
                break
        if expected is None or "error" in made:
            self.counts["refused by both"] += 1
            if (expected is None) != ("error" in made):
                self.differs("refusal", shape, talk, expected and expected[0], made)
            return
        text = made["text"]
        # A token of the next turn that ends the last answer is appended.
        if not text.startswith(expected[0]) or text[len(expected[0]):] not in ["", *self.chat.special]:
            self.differs("text", shape, talk, expected[0], text)
            return
        self.counts["equal texts"] += 1
        if not is_all_text(text, in_characters(text, made["said"])):
            self.differs("what is said", shape, talk, expected[0], shown(text, in_characters(text, made["said"])))
        if not self.compare_masks(shape, talk, ends, text, in_characters(text, made["trained"])) or self.variant is None:
            return
        for marked in filter(None, map(self.variant.write, (talk, with_text(given)))):
            if marked[0].rstrip() == text.rstrip():
                self.compare_marks(shape, talk, ends, text, marked[1])
                return
        self.counts["other text where marked"] += 1
        if self.name not in OTHER_TEXT:
            self.differs("text of the marked variant", shape, talk, text, self.variant.write(talk))

    def compare_marks(self, shape, talk, ends, text, marks):
        self.counts["marked alike"] += 1
        answers = derived_masks.answers(self.chat, talk, text, ends)
        if otherwise := marked_otherwise(self.name, text, answers, marks):
            self.differs("marks", shape, talk, otherwise, text)

    def compare_masks(self, shape, talk, ends, text, trained):
        """Whether what is trained is what texts alone show."""
        answers = derived_masks.answers(self.chat, talk, text, ends)
        if answers is None:
            self.differs("what texts alone show", shape, talk, text, shown(text, trained))
            return False
        wanted = joined(a.trained() for a in answers if talk["messages"][a.i].get("weight") != 0)
        if wanted != trained:
            self.differs("mask", shape, talk, shown(text, wanted), shown(text, trained))
            return False
        self.counts["equal masks"] += 1
        self.shapes[shape] += 1
        return True

    def report(self):
        print(f"{self.name}: " + ", ".join(f"{n} {what}" for what, n in sorted(self.counts.items())), flush=True)
        for kind, (shape, talk, wanted, made) in self.bad.items():
            print(f"--- {self.name}, {kind}, {shape}\n{json.dumps(talk, ensure_ascii=False)}\nexpected {wanted!r}\n"
                  f"made     {made!r}", flush=True)
        return not self.bad


def templates_of(paths):
    for path in paths:
        if path.is_dir():
            for file in sorted(path.glob("*.jinja")):
                if not file.stem.endswith("_training"):
                    marked = file.with_name(file.stem + "_training.jinja")
                    yield file.stem, file.read_text(), marked.read_text() if marked.exists() else None
        else:
            for case in json.loads(path.read_text())["cases"]:
                yield case["name"], case["template_str"], None


def published():
    sources = os.environ.get("FINETUNE_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[3])
    folder = pathlib.Path(os.environ.get("FINETUNE_MATERIAL", pathlib.Path(sources, "../shared/material")))
    found = [path for path in (folder / "templates", folder / "conformance/chat/chat_llama_cpp.json") if path.exists()]
    if not found:
        print(f"skipped: {folder} has no templates; set FINETUNE_MATERIAL to compare published ones")
        sys.exit(77)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", required=True)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("paths", nargs="*", type=pathlib.Path)
    asked = parser.parse_args()
    program = Program(asked.against)
    all_equal, shapes = True, collections.Counter()
    for name, text, marked in templates_of(asked.paths or published()):
        if asked.only not in name:
            continue
        draw = random.Random(f"{name} {asked.seed}")
        kwargs = KWARGS.get(name, {})
        comparison = Comparison(name, Chat(text, kwargs), Chat(marked, kwargs) if marked else None, program)
        for shape, talk in talks(draw, asked.count):
            comparison.compare(shape, talk, draw.choice([[], ENDS.get(name, [])]))
        all_equal &= comparison.report()
        shapes += comparison.shapes
    print("equal by shape: " + ", ".join(f"{shape} {shapes[shape]}" for shape in [*SHAPES, "random"]))
    return 0 if all_equal and all(shapes[shape] for shape in SHAPES) else 1


if __name__ == "__main__":
    sys.exit(main())
