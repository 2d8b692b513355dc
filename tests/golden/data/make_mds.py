#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes mds-*/, data sets of MosaicML's streaming, and mds.json, their samples as its reader gives them.

Needs pip's mosaicml-streaming (0.13.0 wrote these). mds-zstd has several shards. Bytes are left out of mds.json, as
they are when the data are read, but for tokens, which LLM Foundry writes as bytes of int64."""

import json
import pathlib
import shutil
import tempfile

import numpy
from streaming import MDSWriter
from streaming.base.compression import decompress
from streaming.base.format import reader_from_json

HERE = pathlib.Path(__file__).parent
TEXTS = {"question": "str", "n": "int", "about": "json", "score": "float32", "big": "str_int", "raw": "bytes"}
TOKENS = {"tokens": "ndarray:int32", "any": "ndarray", "fixed": "ndarray:uint16:3", "square": "ndarray:int16"}
SAMPLES = [{"question": f"Why {i}? é", "n": -i, "about": {"messages": [{"role": "user", "content": "x" * i}]},
            "score": numpy.float32(i / 4), "big": 10**12 + i, "raw": b"\xff\0"} for i in range(5)]
ARRAYS = [{"tokens": numpy.arange(i + 1, dtype=numpy.int32), "any": numpy.arange(2 * i + 2, dtype=numpy.uint8 if i else numpy.int64),
           "fixed": numpy.array([i, 2, 65535], numpy.uint16),
           "square": numpy.arange(6, dtype=numpy.int16).reshape(2, 3)} for i in range(3)]
BYTES = [{"tokens": numpy.arange(4 + i, dtype=numpy.int64).tobytes()} for i in range(2)]



def plain(value):
    if isinstance(value, bytes):
        value = numpy.frombuffer(value, numpy.int64)
    return value.tolist() if hasattr(value, "tolist") else value


def read_all(folder):
    with tempfile.TemporaryDirectory() as raw:
        for shard in json.loads((folder / "index.json").read_text())["shards"]:
            name = shard["raw_data"]["basename"]
            packed = (folder / (shard["zip_data"]["basename"] if shard["compression"] else name)).read_bytes()
            (pathlib.Path(raw) / name).write_bytes(decompress(shard["compression"], packed) if shard["compression"] else packed)
            reader = reader_from_json(raw, None, shard)
            yield from (reader.get_item(i) for i in range(shard["samples"]))


out = {}
for name, columns, samples, options in [
        ("texts", TEXTS, SAMPLES, {}), ("zstd", TEXTS, SAMPLES, {"compression": "zstd:3", "size_limit": 500, "hashes": ["sha1"]}),
        ("gz", TOKENS, ARRAYS, {"compression": "gz"}), ("tokens", TOKENS, ARRAYS, {}), ("bytes", {"tokens": "bytes"}, BYTES, {})]:
    folder = HERE / f"mds-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    with MDSWriter(out=str(folder), columns=columns, **options) as writer:
        for sample in samples:
            writer.write(sample)
    out[name] = [{key: plain(value) for key, value in sample.items() if key != "raw"} for sample in read_all(folder)]
(HERE / "mds.json").write_text(json.dumps(out) + "\n")
