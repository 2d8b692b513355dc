#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes arrow-saved/, a data set of splits as datasets' save_to_disk has it, arrow-*.feather by pyarrow, and
arrow.json, the rows that these libraries read in them.

Needs pip's datasets and pyarrow (5.2.0 and 26.0.1 wrote these). Columns of no form in JSON (bytes, times) are left out of arrow.json,
as they are when the data are read."""

import datetime
import json
import pathlib
import shutil

import datasets
import pyarrow
import pyarrow.feather

HERE = pathlib.Path(__file__).parent
N = 7
ROWS = [{
    "question": None if i == 2 else f"Why {i}? é" + "x" * i,
    "messages": [{"role": "user", "content": "q" * (j + 1)} if j % 2 == 0 else {"role": "assistant", "content": None if i == 1 else "a"}
                 for j in range(i % 4)],
    "score": None if i == 0 else i / 4,
    "n": -i,
    "good": None if i == 3 else i % 2 == 0,
    "tags": None if i == 4 else ["a", None, "b"][:i],
    "meta": None if i == 5 else {"id": i, "lists": [[1], [], [2, i]]},
} for i in range(N)]

saved = HERE / "arrow-saved"
shutil.rmtree(saved, ignore_errors=True)
train = datasets.Dataset.from_list(ROWS)
test = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]},
                                  features=datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["n", "y"])}))
datasets.DatasetDict({"train": train, "test": test}).save_to_disk(saved, num_shards={"train": 2, "test": 1})
read = datasets.load_from_disk(saved)
out = {"saved-train": [dict(row) for row in read["train"]], "saved-test": [dict(row) for row in read["test"]]}

table = pyarrow.table({
    "text": pyarrow.array(["some text, long enough to be packed " * 4, None, "b", ""] * 3, pyarrow.large_string()),
    "view": pyarrow.array(["short", "a text that is longer than twelve letters", None, ""] * 3, pyarrow.string_view()),
    "kind": pyarrow.array(["x", "y", None, "x"] * 3).dictionary_encode(),
    "small": pyarrow.array([1, None, 255, 0] * 3, pyarrow.uint8()),
    "big": pyarrow.array([2**63, 1, 2, 3] * 3, pyarrow.uint64()),
    "short": pyarrow.array([-1, 1, 2, 3] * 3, pyarrow.int16()),
    "half": pyarrow.array([0.5, 1.5, None, 2.5] * 3, pyarrow.float32()),
    "fixed": pyarrow.array([[1, 2], None, [3, 4], [5, 6]] * 3, pyarrow.list_(pyarrow.int32(), 2)),
    "raw": pyarrow.array([b"\xff", b"", None, b"x"] * 3),
    "when": pyarrow.array([datetime.datetime(2026, 1, 1)] * 12),
    "none": pyarrow.nulls(12),
    "large": pyarrow.array([[["a"], []], [], None, [None, ["b", "c"]]] * 3, pyarrow.large_list(pyarrow.list_(pyarrow.string()))),
})
rows = [{k: v for k, v in row.items() if k not in ("raw", "when")} for row in table.to_pylist()]
for codec in ["lz4", "zstd", "uncompressed"]:
    pyarrow.feather.write_feather(table, HERE / f"arrow-{codec}.feather", compression=codec, chunksize=5)
    assert pyarrow.feather.read_table(HERE / f"arrow-{codec}.feather").equals(table)
    out[codec] = rows
(HERE / "arrow.json").write_text(json.dumps(out) + "\n")
