# SPDX-License-Identifier: Apache-2.0
"""Weights drawn from a key and random projections, to the bit as tests/support/drawn.cpp and projections.hpp have them.

    python drawn.py FOLDER [NAME ...]        # writes models/NAME with its weights into FOLDER

models/NAME/weights.json is {"key": KEY, "files": {FILE: {TENSOR: [shape, centre, scale]}}}. Element i of the tensor that is the
n-th of all by name is centre + scale * 2^-36 * s, rounded to fp32, where s is the sum of the four 16-bit parts of the 64 bits
that Philox gives for (KEY, n, i), less its mean. The product is exact in fp64, so every machine has the same weights.
"""
import json
import pathlib
import shutil
import sys

import numpy as np
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent
USE = 99  # core::RandomUse::test
ONE = 2**36
DEVIATION = 65536 / 3**0.5  # of s: four numbers, evenly spread over [0, 65536)
SIGNS_KEY, NUM_SKETCHES, NUM_SUMS = 41, 2, 8
MASK = (1 << 64) - 1


def mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def bits(seed, stream, count):
    """core::RandomKey(seed, RandomUse::test, stream).bits(i) for i below count."""
    key = mix((seed + 0x9E3779B97F4A7C15 * (stream + 1)) & MASK)
    key, low = [key & 0xFFFFFFFF, key >> 32], np.uint64(0xFFFFFFFF)
    index = np.arange(count, dtype=np.uint64)
    constant = [np.full_like(index, n) for n in (USE, stream & 0xFFFFFFFF)]
    c = [index & low, index >> np.uint64(32), *constant]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(key[0]), b & low, (a >> np.uint64(32)) ^ c[3] ^ np.uint64(key[1]), a & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0] | c[1] << np.uint64(32)


def scale(deviation):
    """Of elements with this standard deviation."""
    return round(deviation * ONE / DEVIATION)


def draw(key, stream, shape, centre, scale):
    random = bits(key, stream, int(np.prod(shape)))
    parts = sum((random >> np.uint64(16 * i)) & np.uint64(0xFFFF) for i in range(4)).astype(np.int64)
    return (centre + (scale * (parts - 2 * 65535)).astype(np.float64) / ONE).astype(np.float32).reshape(shape)


def tensors(recipe):
    """{TENSOR: values} of what weights.json says."""
    described = {k: v for file in recipe["files"].values() for k, v in file.items()}
    return {k: draw(recipe["key"], n, *described[k]) for n, k in enumerate(sorted(described))}


def write_folder(name, folder):
    """Writes the model models/NAME into `folder`, with its weights."""
    source = HERE / "models" / name
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("weights.json"))
    if (source / "weights.json").exists():
        recipe = json.loads((source / "weights.json").read_text())
        values = tensors(recipe)
        for file, names in recipe["files"].items():
            save_file({k: values[k] for k in names}, pathlib.Path(folder) / file, metadata={"format": "pt"})
    return folder


def text(recipe):
    """weights.json, a line for each tensor."""
    files = (f"  {json.dumps(file)}: {{\n" + ",\n".join(f"   {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(names.items())) +
             "\n  }" for file, names in sorted(recipe["files"].items()))
    return f'{{\n "key": {recipe["key"]},\n "files": {{\n' + ",\n".join(files) + "\n }\n}\n"


def project(values):
    """[..., NUM_SKETCHES * NUM_SUMS] of [..., N]: each element goes with a random sign into one sum of each sketch."""
    values = np.asarray(values, dtype=np.float64)
    random = bits(SIGNS_KEY, 0, values.shape[-1])
    sums = []
    for sketch in range(NUM_SKETCHES):
        part = (random >> np.uint64(4 * sketch)) & np.uint64(15)
        signed = values * np.where(part & np.uint64(8), -1.0, 1.0)
        sums += [signed[..., (part & np.uint64(7)) == i].sum(-1) for i in range(NUM_SUMS)]
    return np.stack(sums, -1)


if __name__ == "__main__":
    for each in sys.argv[2:] or sorted(p.parent.name for p in HERE.glob("models/*/config.json")):
        write_folder(each, pathlib.Path(sys.argv[1]) / each)
