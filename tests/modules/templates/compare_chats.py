#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares conversations that the program writes by models' chat templates with what Python's Jinja writes.

    compare_chats.py --against build/tests/write_conversations FOLDER|FILE.json ... [--count 100] [--seed 1]

FOLDER holds NAME.jinja and, for some, NAME_training.jinja, which marks answers ({% generation %}); FILE.json a list of
"cases" with "template_str". Of each template COUNT random conversations are written: texts are to be equal, and what is
trained is to be what the marked variant marks or, where there is none or it writes another text, what each answer adds
to the prompt for it. Prints a line for each template, and the first difference of each kind. Exit code 1 if there is any.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

BEGIN, END = "\uf8a1", "\uf8a2"
WORDS = ["kite", "seven", "the <b>bold</b> one", "naïve", "0.5", "a\nb", "{x}", "日本", "[1]", "'quoted'", "end."]


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller):
        return BEGIN + caller() + END


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[Generation, "jinja2.ext.loopcontrols"])
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: __import__("datetime").datetime(2024, 7, 26).strftime(form)
    return made


ENVIRONMENT = environment()


class Chat:
    """A template as Python's Jinja has it."""

    def __init__(self, text):
        self.text = text
        self.jinja = ENVIRONMENT.from_string(text)
        names = set(re.findall(r"<\|[^|<>\s{}']{1,40}\|>|<｜[^｜<>]{1,40}｜>|<(?:start|end)_of_turn>|\[/?[A-Z_]{3,20}\]|</s>|<s>"
                               r"|<\|\|?[A-Z_]{3,40}\|?\|>", text))
        self.special = sorted(names | {"<BOS>", "<EOS>"})

    def write(self, talk, prompt=False, number=None):
        """The text and what {% generation %} marks, or None if the template refuses it."""
        messages = talk["messages"] if number is None else talk["messages"][:number]
        try:
            text = self.jinja.render(messages=messages, tools=talk.get("tools"), documents=None, bos_token="<BOS>",
                                     eos_token="<EOS>", add_generation_prompt=prompt, **talk.get("kwargs", {}))
        except (jinja2.exceptions.TemplateError, TypeError, AttributeError, KeyError, ValueError, IndexError):
            return None
        marks, out, at = [], [], 0
        for part in re.split(f"([{BEGIN}{END}])", text):
            if part == BEGIN:
                marks.append([at, at])
            elif part == END:
                marks[-1][1] = at
            else:
                out.append(part)
                at += len(part)
        return "".join(out), marks


def said(random_):
    return " ".join(random_.choice(WORDS) for _ in range(random_.randint(1, 4)))


def call(random_, i):
    arguments = {"thing": said(random_), "number": random_.randint(0, 9)}
    return {"id": f"a1b2c3d4{i}", "type": "function", "function": {"name": "find_thing", "arguments": arguments}}


def conversation(random_):
    messages = [{"role": "system", "content": said(random_)}] if random_.random() < 0.5 else []
    with_tools = random_.random() < 0.4
    for _ in range(random_.randint(1, 3)):
        messages.append({"role": "user", "content": said(random_)})
        if with_tools and random_.random() < 0.7:
            calls = [call(random_, i) for i in range(random_.randint(1, 2))]
            answer = {"role": "assistant", "content": random_.choice(["", said(random_)]), "tool_calls": calls}
            messages.append(answer)
            for each in calls:
                messages.append({"role": "tool", "content": said(random_), "name": "find_thing", "tool_call_id": each["id"]})
        answer = {"role": "assistant", "content": said(random_) if random_.random() < 0.95 else ""}
        if random_.random() < 0.3:
            answer["reasoning_content"] = answer["thinking"] = said(random_)
        messages.append(answer)
    if random_.random() < 0.1:
        messages[-1]["weight"] = 0
    talk = {"messages": messages}
    if with_tools:
        parameters = {"type": "object", "properties": {"thing": {"type": "string", "description": said(random_)},
                                                       "number": {"type": "integer", "description": "how many"}},
                      "required": ["thing"]}
        talk["tools"] = [{"type": "function", "function": {"name": "find_thing", "description": said(random_),
                                                           "parameters": parameters}}]
    return talk


def with_texts(talk):
    """Arguments as texts, for templates that add them to one; the program gives those the same."""
    talk = json.loads(json.dumps(talk))
    for message in talk["messages"]:
        for each in message.get("tool_calls", []):
            each["function"]["arguments"] = json.dumps(each["function"]["arguments"], ensure_ascii=False)
    return talk


class Program:
    def __init__(self, command):
        self.process = subprocess.Popen([command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def write(self, chat, talk, ends):
        question = dict(talk, template=chat.text, bos="<BOS>", eos="<EOS>", special=chat.special, ends=ends)
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def characters(text, ranges):
    """Which characters of `text` the ranges, of bytes, have."""
    mask = bytearray(len(text.encode()))
    for begin, end in ranges:
        mask[begin:end] = b"\x01" * (end - begin)
    chosen, at = [], 0
    for character in text:
        chosen.append(mask[at])
        at += len(character.encode())
    return chosen


def shown(text, mask):
    out, inside = "", False
    for character, trained in zip(text, mask):
        if bool(trained) != inside:
            out += "»" if inside else "«"
            inside = not inside
        out += character
    return out + ("»" if inside else "")


def marked_mask(text, written, talk):
    """Of the marked variant, but for the last answer where its weight is 0."""
    if talk["messages"][-1].get("weight") == 0:
        before = [m for m in talk["messages"][:-1] if m["role"] == "assistant"]
        written = (written[0], written[1][:len(before)])
    mask = [0] * len(text)
    for begin, end in written[1]:
        for i in range(begin, end):
            mask[i] = 1
    return mask


def added_mask(chat, talk, text):
    """By what each answer adds; None where what comes before it is written otherwise once it is there."""
    mask = [0] * len(text)
    if chat.write(talk, True) == chat.write(talk, False):
        return None
    for i, message in enumerate(talk["messages"]):
        if message["role"] != "assistant" or message.get("weight") == 0:
            continue
        before, behind = chat.write(talk, True, i), chat.write(talk, False, i + 1)
        if before is None or behind is None or not behind[0].startswith(before[0]) or not text.startswith(behind[0]):
            return None
        if not message["content"] and "tool_calls" not in message and "reasoning_content" not in message:
            return None
        end = len(behind[0])
        while end > 0 and text[end - 1] in " \n":
            end -= 1
        for k in range(len(before[0]), end):
            mask[k] = 1
    return mask


def ranges_of(text, mask):
    """Trained ranges without white space at their ends, which variants mark or not."""
    ranges, begin = [], None
    for i, trained in enumerate(list(mask) + [0]):
        if trained and begin is None:
            begin = i
        elif not trained and begin is not None:
            end = i
            while begin < end and text[begin] in " \n":
                begin += 1
            while begin < end and text[end - 1] in " \n":
                end -= 1
            if begin < end:
                ranges.append((begin, end))
            begin = None
    return ranges


def agree(chat, talk, text, wanted, made, ends):
    """Whether the ranges are the same, but for what variants see otherwise: some mark the prompt of an answer, too, and
    what follows the token that ends it; and nothing shows by prompts that the next turn's token is its end."""
    if len(wanted) != len(made):
        return False
    numbers = [i for i, m in enumerate(talk["messages"]) if m["role"] == "assistant"]
    prompts = [made[0] for made in (chat.write(talk, True, i) for i in numbers) if made is not None]
    empty = any(m["role"] == "assistant" and not m["content"] and not m.get("tool_calls") for m in talk["messages"])
    for (first, last), (begin, end) in zip(wanted, made):
        before, behind = text[first:begin], text[min(end, last):max(end, last)].strip()
        is_prompt = before == "" or any(before.strip() in prompt[-200:] for prompt in prompts)
        if begin < first or not (is_prompt or empty) or not (behind == "" or behind in chat.special):
            return False
    return True


def compare(name, chat, variant, program, count, seed):
    random_ = random.Random(f"{name} {seed}")
    counts = dict.fromkeys(["equal", "refused", "masks by marks", "masks by prompts", "masks by nothing"], 0)
    bad = {}
    for _ in range(count):
        talk = conversation(random_)
        expected = chat.write(talk)
        if expected is None and chat.write(with_texts(talk)) is not None:
            talk = with_texts(talk)
            expected = chat.write(talk)
        ends = ENDS.get(name, [])
        made = program.write(chat, talk, ends)
        if expected is None or "error" in made:
            if (expected is None) != ("error" in made):
                bad.setdefault("refusal", (talk, expected and expected[0], made))
            counts["refused"] += 1
            continue
        text = expected[0]
        if made["text"] != text and not (made["text"].startswith(text) and made["text"][len(text):] in chat.special):
            bad.setdefault("text", (talk, text, made["text"]))
            continue
        counts["equal"] += 1
        mask = characters(made["text"], made["trained"])
        marked = variant.write(talk) if variant else None
        if marked is not None and marked[0].rstrip() == made["text"].rstrip():
            kind, wanted = "masks by marks", marked_mask(made["text"], marked, talk)
        else:
            wanted = added_mask(chat, talk, made["text"])
            kind = "masks by prompts" if wanted is not None else "masks by nothing"
        counts[kind] += 1
        if wanted is not None and not agree(chat, talk, made["text"], ranges_of(made["text"], wanted),
                                            ranges_of(made["text"], mask), ends):
            bad.setdefault(kind, (talk, shown(made["text"], wanted), shown(made["text"], mask)))
    print(f"{name}: {counts}" + (f" DIFFERENT: {list(bad)}" if bad else ""))
    for kind, (talk, wanted, made) in bad.items():
        print(f"--- {name} {kind}\n{json.dumps(talk, ensure_ascii=False)}\nexpected {wanted!r}\nmade     {made!r}")
    return not bad


# Where the next turn's token ends an answer, as these models' generation_config.json says.
ENDS = {"glm4moe": ["<|user|>", "<|observation|>", "<|system|>"]}


def templates_of(paths):
    for path in map(pathlib.Path, paths):
        if path.is_dir():
            for file in sorted(path.glob("*.jinja")):
                if not file.stem.endswith("_training"):
                    marked = file.with_name(file.stem + "_training.jinja")
                    yield file.stem, file.read_text(), marked.read_text() if marked.exists() else None
        else:
            for case in json.loads(path.read_text())["cases"]:
                yield case["name"], case["template_str"], None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("paths", nargs="+")
    asked = parser.parse_args()
    program = Program(asked.against)
    all_equal = True
    for name, text, marked in templates_of(asked.paths):
        if asked.only in name:
            all_equal &= compare(name, Chat(text), Chat(marked) if marked else None, program, asked.count, asked.seed)
    return 0 if all_equal else 1


if __name__ == "__main__":
    sys.exit(main())
