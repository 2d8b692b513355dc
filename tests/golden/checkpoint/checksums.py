#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes checksums.json: the CRC32C of every tensor of the checkpoint beside it, as h5py reads it.

    python3 tests/golden/checkpoint/checksums.py
"""
import json
import pathlib

import h5py
import numpy

FOLDER = pathlib.Path(__file__).parent


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def main():
    assert crc32c(b"123456789") == 0xE3069283
    checksums = {}
    with h5py.File(FOLDER / "step-0000000002/node00000.h5") as file:
        for kind in file.values():
            for tensor in kind.values():
                slices = sorted(tensor.values(), key=lambda s: s.attrs["offset"][0])
                whole = numpy.concatenate([numpy.asarray(s) for s in slices])
                assert whole.size == numpy.prod(slices[0].attrs["global_shape"])
                checksums[tensor.name.lstrip("/")] = crc32c(whole.tobytes())
    (FOLDER / "checksums.json").write_text(json.dumps(checksums, indent=1) + "\n")


main()
