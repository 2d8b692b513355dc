#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes rows-*.parquet with pyarrow, in all ways to encode and compress, and rows.json, the rows that it reads in them.

Needs pip's pyarrow (26.0.1 wrote these). Columns of no form in JSON (bytes, times, maps, decimals) are left out of rows.json, as they
are when the data are read."""

import datetime
import decimal
import json
import pathlib
import random

import pyarrow
import pyarrow.parquet

HERE = pathlib.Path(__file__).parent
N = 60
random.seed(1)


def some(value, i, every=7):
    return None if i % every == every - 1 else value


table = pyarrow.table({
    "question": pyarrow.array([some(f"Why {i}? é" + "x" * (i % 9), i) for i in range(N)]),
    "answer": pyarrow.array([f"{i % 3}" for i in range(N)], pyarrow.large_string()),
    "messages": pyarrow.array([some([{"role": "user" if j % 2 == 0 else "assistant", "content": some(f"{i} {j}", i + j, 5),
                                      "weight": some(j, j, 3)} for j in range(i % 4)], i, 11) for i in range(N)]),
    "deep": pyarrow.array([some([some([k if k else None for k in range(j)], j, 4) for j in range(i % 5)], i, 6) for i in range(N)],
                          pyarrow.list_(pyarrow.list_(pyarrow.int16()))),
    "input_ids": pyarrow.array([[random.randrange(50000) for _ in range(i % 7)] for i in range(N)], pyarrow.list_(pyarrow.int32())),
    "meta": pyarrow.array([some({"id": i, "tags": some(["a", "b"][:i % 3], i, 4), "in": some({"x": i / 2}, i, 3)}, i, 5) for i in range(N)]),
    "big": pyarrow.array([2**63 + i for i in range(N)], pyarrow.uint64()),
    "natural": pyarrow.array([some(2**32 - 1 - i, i) for i in range(N)], pyarrow.uint32()),
    "small": pyarrow.array([(i % 256) - 128 for i in range(N)], pyarrow.int8()),
    "id": pyarrow.array([10**12 * (-1)**i + i * i for i in range(N)], pyarrow.int64()),
    "good": pyarrow.array([some(i % 3 == 0, i) for i in range(N)]),
    "score": pyarrow.array([some(i / 8, i) for i in range(N)], pyarrow.float32()),
    "exact": pyarrow.array([i / 7 for i in range(N)], pyarrow.float64()),
    "kind": pyarrow.array([some("xyz"[i % 3], i) for i in range(N)]).dictionary_encode(),
    "none": pyarrow.nulls(N),
    "raw": pyarrow.array([b"\xff" * (i % 2) for i in range(N)]),
    "when": pyarrow.array([datetime.datetime(2026, 1, 1)] * N),
    "price": pyarrow.array([decimal.Decimal("1.25")] * N),
    "map": pyarrow.array([[("a", i)] for i in range(N)], pyarrow.map_(pyarrow.string(), pyarrow.int32())),
})
SKIPPED = ("raw", "when", "price", "map")
DELTAS = {"question": "DELTA_BYTE_ARRAY", "answer": "DELTA_LENGTH_BYTE_ARRAY", "id": "DELTA_BINARY_PACKED", "small": "DELTA_BINARY_PACKED",
          "score": "BYTE_STREAM_SPLIT", "exact": "BYTE_STREAM_SPLIT", "input_ids.list.element": "DELTA_BINARY_PACKED"}
WAYS = {
    "snappy": {},
    "plain": {"compression": "none", "use_dictionary": False, "data_page_size": 200, "write_batch_size": 10},
    "gzip-v2": {"compression": "gzip", "data_page_version": "2.0", "row_group_size": 25},
    "zstd-deltas": {"compression": "zstd", "use_dictionary": False, "column_encoding": DELTAS, "data_page_version": "2.0"},
    "lz4-old": {"compression": "lz4", "version": "1.0", "use_compliant_nested_type": False, "row_group_size": 40},
}
columns = [name for name in table.column_names if name not in SKIPPED]
for name, options in WAYS.items():
    path = HERE / f"rows-{name}.parquet"
    pyarrow.parquet.write_table(table, path, write_statistics=False, store_schema=False, **options)
    assert pyarrow.parquet.read_table(path, columns=columns).to_pylist() == table.select(columns).to_pylist(), name
(HERE / "rows.json").write_text(json.dumps(table.select(columns).to_pylist()) + "\n")
