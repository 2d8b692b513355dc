# SPDX-License-Identifier: Apache-2.0
"""Which parts of a conversation are answers, told from texts alone: what Python's Jinja writes of the conversation, of
the prompts for its answers, and of longer ones. Nothing is known of how a template works, nor of turns and origins as the
program knows them. Ranges are of characters."""
import re
import sys
import pathlib
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import python_jinja
from python_jinja import jinja2
from random_chats import BEGIN, END

MARKS = "\uf8a1", "\uf8a2"
DAY_OF_TRAINING = 1_721_952_000
ENVIRONMENT = python_jinja.environment(DAY_OF_TRAINING, marks=MARKS)
NAMES = re.compile(r"<\|[^|<>\s{}']{1,40}\|>|<｜[^｜<>]{1,40}｜>|<(?:start|end)_of_turn>|\[/?[A-Z_]{3,20}\]|</s>|<s>"
                   r"|<\|\|?[A-Z_]{3,40}\|?\|>")
FAILURES = (jinja2.exceptions.TemplateError, TypeError, AttributeError, KeyError, ValueError, IndexError)


class Answer(NamedTuple):
    """Of message `i`: behind what the prompt for it writes, the tokens that end it, and where these end."""
    i: int
    begin: int
    ends_at: int
    end: int
    is_empty: bool

    def trained(self):
        return (self.ends_at if self.is_empty else self.begin, self.end)


class Chat:
    """A template as Python's Jinja has it. `kwargs`: names that it is given beside the conversation."""

    def __init__(self, text, kwargs={}):
        self.text, self.kwargs = text, kwargs
        self.jinja = ENVIRONMENT.from_string(text)
        self.special = sorted({*NAMES.findall(text + str(kwargs)), "<BOS>", "<EOS>"})
        self.finder = re.compile("|".join(map(re.escape, sorted(self.special, key=len, reverse=True))))
        # The prompt for an answer where it is always written, asked for or not.
        nothing, question = {"messages": []}, {"messages": [{"role": "user", "content": "⟦0·q·0⟧"}]}
        is_always = self.write(question, True) is not None and self.write(question, True) == self.write(question, False)
        alone = self.write(nothing) if is_always else None
        self.always = alone[0] if alone and self.write(question)[0].endswith(alone[0]) else ""

    def write(self, talk, prompt=False, number=None):
        """The text and what {% generation %} marks, or None if the template refuses it."""
        try:
            text = self.jinja.render(messages=talk["messages"][:number], tools=talk.get("tools"), documents=None,
                                     bos_token="<BOS>", eos_token="<EOS>", add_generation_prompt=prompt,
                                     **self.kwargs, **talk.get("kwargs", {}))
        except FAILURES:
            return None
        marks, out, at = [], [], 0
        for part in re.split("([" + "".join(MARKS) + "])", text):
            if part == MARKS[0]:
                marks.append((at, at))
            elif part == MARKS[1]:
                marks[-1] = (marks[-1][0], at)
            else:
                out.append(part)
                at += len(part)
        return "".join(out), marks

    def places(self, text):
        return [match.span() for match in self.finder.finditer(text)]


def behind_last(text):
    """What follows the last thing that a message says, and which message that was."""
    last = None
    for last in END.finditer(text):
        pass
    return (text[last.end():], int(last[1])) if last else (text, None)


def same(a, b):
    length = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return length


def outside(chat, text, at):
    """`at`, or where the name or tag that it is inside of begins."""
    for begin, end in chat.places(text):
        if begin < at < end:
            return begin
    opened = max(text.rfind("<", 0, at), text.rfind("[", 0, at))
    if opened < 0:
        return at
    closed = ">" if text[opened] == "<" else "]"
    return at if re.search("[\n" + re.escape(closed) + "]", text[opened:at]) else opened


def where_said(chat, talk, text, i):
    """Where what message `i` says stands in the text, and the conversation with something said there; None where the
    text does not show it."""
    message = talk["messages"][i]
    begins = [match.start() for match in BEGIN.finditer(text) if int(match[1]) == i]
    ends = [match.end() for match in END.finditer(text) if int(match[1]) == i]
    if begins and ends:
        content = message["content"] or ""
        behind = content[len(content.rstrip()):]
        is_last = END.search(content) and text.endswith(content.rstrip(), 0, max(ends))
        return min(begins), max(ends) + (len(behind) if is_last and text.startswith(behind, max(ends)) else 0), talk
    # It says nothing that the template writes: where it would. Some write a line's end, too, before what is said, or what
    # stands for nothing.
    messages = list(talk["messages"])
    messages[i] = dict(message, content=f"⟦{i}·{i}⟧")
    said = dict(talk, messages=messages)
    other = chat.write(said)
    for written, instead in ((f"⟦{i}·{i}⟧", ""), (f"\n⟦{i}·{i}⟧", ""), (f"⟦{i}·{i}⟧", "None"), (f"⟦{i}·{i}⟧", "null")):
        if other and text.startswith(other[0].replace(written, instead)) and written in other[0]:
            at = other[0].find(written)
            return at, at + len(instead), said
    return None


def is_left_out(chat, talk, text, i):
    """Whether the template writes no turn for message `i`. `text`: of the whole conversation."""
    messages = talk["messages"]
    other = chat.write(dict(talk, messages=messages[:i] + messages[i + 1:]))
    return other is not None and other[0] == text


def begin_of(chat, talk, text, i, begin):
    """Behind what the prompt for the answer and the answer write alike."""
    prompt = chat.write(talk, True, i)
    if prompt is None:
        return begin
    wanted, before = behind_last(prompt[0])
    found, other = behind_last(text[:begin])
    if before != other:
        return None
    length = same(found, wanted)
    if length < len(wanted):
        length = min(outside(chat, found, length), outside(chat, wanted, length))
    return begin - len(found) + length


def tail_of(chat, written, i, space):
    """What is written behind what message `i` says with the white space that it ends with, up to what the next says."""
    ends = [match.end() for match in END.finditer(written) if int(match[1]) == i]
    if not ends:
        return None
    tail = written[ends[-1]:].removeprefix(space)
    following = BEGIN.search(tail)
    if following:
        return tail[:following.start()]
    # Some write the prompt for a next answer, asked or not.
    return tail.removesuffix(chat.always) if chat.always else tail


def own_tail(chat, talk, tail, i, space):
    """What of the tail is written alike whatever follows: nothing, or a message of somebody else."""
    messages = talk["messages"][:i + 1]
    others = [chat.write(dict(talk, messages=messages))]
    for role in ["tool", "user"] if messages[i].get("tool_calls") else ["user"]:
        longer = chat.write(dict(talk, messages=messages + [{"role": role, "content": f"⟦{i + 1}·next·{i + 1}⟧"}]))
        if longer and f"⟦{i + 1}·" in longer[0]:
            others.append(longer)
            break
    for other in others:
        behind = other and tail_of(chat, other[0], i, space)
        if behind is None:
            continue
        length = same(tail, behind)
        if length < max(len(tail), len(behind)):
            length = min(outside(chat, tail, length), outside(chat, behind, length))
        tail = tail[:length]
    return tail


def end_of(chat, talk, text, i, end, ends, says):
    """Where the tokens that end the answer begin and end. `says`: whether there is anything before them."""
    following = BEGIN.search(text, end)
    tail = text[end:following.start()] if following else text[end:].removesuffix(chat.always)
    own = own_tail(chat, talk, tail, i, text[text.rfind("⟧", 0, end) + 1:end] if says else "")
    places = chat.places(own)
    if not places:
        # Of the next turn, unless the same role goes on there.
        rest, whole = range(i + 1, len(talk["messages"])), chat.write(talk)[0]
        other = next((k for k in rest if not is_left_out(chat, talk, whole, k)), None)
        goes_on = other is not None and talk["messages"][other]["role"] == "assistant"
        first = next((place for place in chat.places(tail) if place[0] == len(own) and
                      (not goes_on or tail[place[0]:place[1]] in ends)), None)
        if first:
            return end + first[0], end + first[1]
        if not says:
            return None, None
        # Nothing ends it but what closes thoughts or calls.
        content = (talk["messages"][i]["content"] or "").strip()
        closed = 0 if content and text[:end].rstrip().endswith(content) else len(own.rstrip())
        return None, end + closed
    at = next((k for k, (b, e) in enumerate(places) if own[b:e] in ends), len(places) - 1)
    first = last = at
    while last + 1 < len(places) and places[last + 1][0] == places[last][1]:
        last += 1
    while first > 0 and places[first - 1][1] == places[first][0]:
        first -= 1
    return end + places[first][0], end + places[last][1]


def answers(chat, talk, text, ends):
    """Those of the conversation whose text this is; None where texts alone do not tell. `ends`: at which generation
    stops."""
    made = []
    for i, message in enumerate(talk["messages"]):
        if message["role"] != "assistant":
            continue
        is_shown = f"⟦{i}·" in text
        if not is_shown and is_left_out(chat, talk, text, i):
            continue
        said = where_said(chat, talk, text, i)
        begin = said and begin_of(chat, said[2], text, i, said[0])
        if begin is None:
            return None
        ends_at, end = end_of(chat, said[2], text, i, said[1], ends, said[2] is talk)
        is_empty = not ((message["content"] or "").strip() or message.get("tool_calls") or message.get("thinking"))
        made.append(Answer(i, begin, ends_at if ends_at is not None else end or begin, end or begin, is_empty))
    return made
