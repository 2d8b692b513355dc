#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes chats.parquet, chats.feather and chats.json: conversations in a table, where structs have the fields of all rows, and some fields
have no form in JSON.

Needs pip's pyarrow (26.0.1 wrote these). chats.json has the rows, without these fields."""

import datetime
import json
import pathlib

import pyarrow
import pyarrow.feather
import pyarrow.parquet

HERE = pathlib.Path(__file__).parent
WHEN = datetime.datetime(2026, 1, 1)

text, number = pyarrow.string(), pyarrow.int64()
arguments = pyarrow.struct([("thing", text), ("at", pyarrow.timestamp("us")), ("count", number),
                            ("options", pyarrow.struct([("deep", text), ("list", pyarrow.list_(text))]))])
call = pyarrow.struct([("id", text), ("function", pyarrow.struct([("name", text), ("arguments", arguments)]))])
part = pyarrow.struct([("type", text), ("text", text), ("image", pyarrow.binary())])
message = pyarrow.struct([
    ("timestamp", pyarrow.timestamp("us")),  # in front: the first leaf of the list is one that is not read
    ("role", pyarrow.dictionary(pyarrow.int8(), text)), ("content", text), ("tool_calls", pyarrow.list_(call)), ("parts", pyarrow.list_(part)), ("name", text),
    ("tags", pyarrow.map_(text, number)), ("times", pyarrow.list_(pyarrow.time32("s"))),
    ("meta", pyarrow.struct([("price", pyarrow.decimal128(5, 2)), ("raw", pyarrow.binary())])), ("weight", number)])
tool = pyarrow.struct([("type", text), ("function", pyarrow.struct([
    ("name", text), ("since", pyarrow.date32()),
    ("parameters", pyarrow.struct([("properties", pyarrow.struct([("thing", pyarrow.struct([("type", text)])), ("count", pyarrow.struct([("type", text), ("most", number)]))]))]))]))])
kwargs = pyarrow.struct([("enable_thinking", pyarrow.bool_()), ("reasoning_effort", text)])


def said(role, content, **more):
    return {"timestamp": WHEN, "role": role, "content": content, "tags": [("a", 1)], "times": [WHEN.time()], "meta": {"raw": b"\xff"}, **more}


def called(name, **arguments):
    return {"id": "c1", "function": {"name": name, "arguments": arguments}}


rows = [
    {"messages": [said("user", "Who has the bell?"), said("assistant", None, tool_calls=[called("find_owner", thing="bell", at=WHEN)]),
                  said("tool", "Ina", name="find_owner"), said("assistant", "Ina has the bell.", weight=1)],
     "tools": [{"type": "function", "function": {"name": "find_owner", "since": WHEN.date(), "parameters": {"properties": {"thing": {"type": "string"}}}}}],
     "chat_template_kwargs": {"enable_thinking": False}, "when": WHEN},
    {"messages": [said("user", "Two?"), said("assistant", "", tool_calls=[called("count", count=2**62 + 1, options={"list": ["a", None]}), called("none")])],
     "tools": [{"type": "function", "function": {"name": "count", "parameters": {"properties": {"count": {"type": "integer", "most": 9}}}}}],
     "chat_template_kwargs": None, "when": None},
    {"messages": [said("user", "", parts=[{"type": "text", "text": "a"}, {"type": "image", "image": b"x"}]), said("assistant", "b")],
     "tools": None, "chat_template_kwargs": {"reasoning_effort": "high"}, "when": WHEN},
    {"messages": None, "tools": [], "chat_template_kwargs": None, "when": WHEN},
]
table = pyarrow.table({
    "messages": pyarrow.array([row["messages"] for row in rows], pyarrow.list_(message)),
    "tools": pyarrow.array([row["tools"] for row in rows], pyarrow.list_(tool)),
    "chat_template_kwargs": pyarrow.array([row["chat_template_kwargs"] for row in rows], kwargs),
    "when": pyarrow.array([row["when"] for row in rows], pyarrow.timestamp("us")),
})
LEFT_OUT = {"timestamp", "at", "image", "tags", "times", "meta", "since", "when"}


def readable(value):
    if isinstance(value, dict):
        return {key: readable(item) for key, item in value.items() if key not in LEFT_OUT}
    return [readable(item) for item in value] if isinstance(value, list) else value


pyarrow.parquet.write_table(table, HERE / "chats.parquet", row_group_size=3)
pyarrow.feather.write_feather(table, HERE / "chats.feather", compression="zstd")
(HERE / "chats.json").write_text(json.dumps([readable(row) for row in table.to_pylist()]) + "\n")
