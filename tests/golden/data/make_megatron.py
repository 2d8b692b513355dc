#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes megatron-*.bin and .idx with Megatron-LM's own builder, and megatron.json, the documents as its reader gives them.

Needs pip's megatron-core (0.16.1 wrote these), torch and numpy; two documents have several sequences, one has none."""

import json
import pathlib

import numpy
import torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

HERE = pathlib.Path(__file__).parent
DOCUMENTS = [[[1, 5, 9, 2]], [[1, 7], [300, 4, 2]], [], [[1, 65535, 2], [3], [2]], [[2]]]

out = {}
for name in ["uint16", "int32"]:
    prefix = str(HERE / f"megatron-{name}")
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=numpy.dtype(name).type)
    for document in DOCUMENTS:
        for sequence in document:
            builder.add_item(torch.tensor(sequence))
        builder.end_document()
    builder.finalize(prefix + ".idx")
    read = IndexedDataset(prefix)
    ends = read.document_indices
    out[name] = [[int(i) for s in range(ends[d], ends[d + 1]) for i in read[s]] for d in range(len(ends) - 1)]
(HERE / "megatron.json").write_text(json.dumps(out) + "\n")
