# SPDX-License-Identifier: Apache-2.0
"""Conversations for comparisons: one of every shape, and random ones.

What message i says is enclosed in "⟦i·" and "·i⟧", wherever it says something: in its content, its reasoning and the
arguments of its calls. So a text alone shows who said what, in whatever way a template wrote it.
"""
import json
import re

# Names of tokens, too: what messages say is text.
WORDS = ["kite", "seven", "the <b>bold</b> one", "naïve", "0.5", "a\nb", "{x}", "日本", "[1]", "'quoted'", "end.", "tab\there",
         "<|im_end|>", "<|end|>", "</s>", "<EOS>", "[INST]", "<|user|>", "<end_of_turn>", "<|eot_id|>", "\"double\"", "\\n"]
BEGIN, END = re.compile("⟦([0-9]+)·"), re.compile("·([0-9]+)⟧")


def words(draw):
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 4)))


def enclosed(i, text):
    """As message `i` says it, in one text or in parts; white space stays outside."""
    if isinstance(text, list):
        return [part | {"text": enclosed(i, part["text"])} for part in text]
    if text is None:
        return None
    bare = text.strip()
    return text.replace(bare, f"⟦{i}·{bare}·{i}⟧") if bare else text


def system(draw):
    return {"role": "system", "content": words(draw)}


def user(draw):
    return {"role": "user", "content": words(draw)}


def answer(draw, thinks=False, empty=False):
    made = {"role": "assistant", "content": "" if empty else words(draw)}
    if thinks:
        made["reasoning_content"] = made["thinking"] = words(draw)
    return made


def calling(draw, num_calls=1, content="", thinks=False):
    """An answer that calls functions, and what they return."""
    calls = [{"id": f"a1b2c3d4{i}", "type": "function",
              "function": {"name": "find_thing", "arguments": {"thing": words(draw), "number": draw.randint(0, 9)}}}
             for i in range(num_calls)]
    asking = answer(draw, thinks=thinks, empty=True) | {"content": content, "tool_calls": calls}
    return [asking] + [{"role": "tool", "content": words(draw), "name": "find_thing", "tool_call_id": each["id"]}
                       for each in calls]


def tools(draw):
    parameters = {"type": "object", "required": ["thing"],
                  "properties": {"thing": {"type": "string", "description": words(draw)},
                                 "number": {"type": "integer", "description": "how many"}}}
    return [{"type": "function",
             "function": {"name": "find_thing", "description": words(draw), "parameters": parameters}}]


def talk(messages, tools=None):
    for i, message in enumerate(messages):
        for field in ("content", "reasoning_content", "thinking"):
            if field in message:
                message[field] = enclosed(i, message[field])
        for call in message.get("tool_calls", []):
            arguments = call["function"]["arguments"]
            arguments["thing"] = enclosed(i, arguments["thing"])
    return {"messages": messages} | ({"tools": tools} if tools else {})


def turns(draw, count):
    return [message for _ in range(count) for message in (user(draw), answer(draw))]


def weightless_in_the_middle(draw):
    messages = turns(draw, 3)
    messages[3]["weight"] = 0
    return talk(messages)


SHAPES = {
    "one turn": lambda draw: talk(turns(draw, 1)),
    "three turns": lambda draw: talk(turns(draw, 3)),
    "system": lambda draw: talk([system(draw)] + turns(draw, 2)),
    "tools with calls and results": lambda draw: talk(
        [system(draw), user(draw), *calling(draw), answer(draw), user(draw), *calling(draw), answer(draw)], tools(draw)),
    "a call at the end": lambda draw: talk([user(draw), calling(draw)[0]], tools(draw)),
    "parallel calls": lambda draw: talk([user(draw), *calling(draw, 2), answer(draw)], tools(draw)),
    "reasoning in the last turn": lambda draw: talk(turns(draw, 1) + [user(draw), answer(draw, thinks=True)]),
    "reasoning in earlier turns": lambda draw: talk([user(draw), answer(draw, thinks=True)] + turns(draw, 1)),
    "reasoning before a call": lambda draw: talk(
        [user(draw), *calling(draw, thinks=True), answer(draw, thinks=True)], tools(draw)),
    "empty answer": lambda draw: talk([user(draw), answer(draw, empty=True)] + turns(draw, 1)),
    "empty last answer": lambda draw: talk(turns(draw, 1) + [user(draw), answer(draw, empty=True)]),
    "weight 0 in the middle": weightless_in_the_middle,
}


def random_talk(draw):
    messages = [system(draw)] if draw.random() < 0.5 else []
    with_tools = draw.random() < 0.4
    for _ in range(draw.randint(1, 4)):
        messages.append(user(draw))
        while with_tools and draw.random() < 0.5:
            content = draw.choice(["", None, words(draw)])
            messages += calling(draw, draw.randint(1, 3), content, thinks=not content and draw.random() < 0.2)
        messages.append(answer(draw, thinks=draw.random() < 0.3, empty=draw.random() < 0.05))
        if messages[-1]["content"] and draw.random() < 0.1:
            messages[-1]["content"] = "\n" + messages[-1]["content"] + " \n"
    for message in messages:
        if message["role"] == "assistant" and draw.random() < 0.1:
            message["weight"] = 0
        elif message["role"] == "user" and draw.random() < 0.03:
            message["content"] = [{"type": "text", "text": message["content"]}]
        for call in message.get("tool_calls", []):
            if draw.random() < 0.2:
                call["function"]["arguments"]["deep"] = {"list": [1, 2.5, None, True, "é\"\n"], "nothing": {}}
    if messages[-1]["content"] and draw.random() < 0.05:
        messages.pop()
        messages += calling(draw)[:1] if with_tools else [answer(draw)]
    kwargs = {"enable_thinking": draw.random() < 0.5} if draw.random() < 0.1 else {}
    return talk(messages, tools(draw) if with_tools else None) | ({"kwargs": kwargs} if kwargs else {})


def talks(draw, count):
    """One of each shape, and random ones up to `count`: pairs of a shape's name and a conversation."""
    for i, (shape, make) in enumerate(SHAPES.items()):
        if i < count:
            yield shape, make(draw)
    for _ in range(len(SHAPES), count):
        yield "random", random_talk(draw)


def with_text(talk):
    """Content in parts as one text, for templates that know no parts; the program gives both."""
    return dict(talk, messages=[
        m | {"content": "".join(part["text"] for part in m["content"])} if isinstance(m["content"], list) else m
        for m in talk["messages"]])


def with_texts(talk):
    """Arguments as texts, too, for templates that add them to one; the program gives both."""
    talk = json.loads(json.dumps(with_text(talk)))
    for message in talk["messages"]:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return talk
