# SPDX-License-Identifier: Apache-2.0
"""Reads every tensor of a checkpoint with h5py and compares it with the manifest and an export.

    python3 read_with_h5py.py step-0000000200 exported/model.safetensors

Shares no code with the program: HDF5 by h5py, CRC32C from its definition, safetensors by hand. Names the first thing that
does not fit and ends with 1. With h5dump on the PATH, `h5dump -H` has to list all datasets too.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

import h5py
import numpy

STORED = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
          "U8": "u1", "BOOL": "u1"}


def require(condition, what):
    if not condition:
        print(f"error: {what}", file=sys.stderr)
        sys.exit(1)


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def text(attribute):
    return attribute.decode() if isinstance(attribute, bytes) else str(attribute)


def dataset_path(manifest, slice_):
    index, begin, extent = manifest["boxes"][slice_[0]]
    kind, name, _, shape = manifest["tensors"][index]
    box = "" if extent == shape else ",".join(map(str, begin)) + "+"
    return f"{kind}/{name}/{box}{slice_[2]}"


def check_slice(manifest, files, slice_):
    """Returns the box's index, the first element and the elements of one row of the manifest."""
    index, file, offset, count, position, checksums = slice_
    tensor, begin, extent = manifest["boxes"][index]
    _, _, dtype, shape = manifest["tensors"][tensor]
    path = dataset_path(manifest, slice_)
    where = f"{manifest['files'][file][0]}:/{path}"
    dataset = files[file].get(path)
    require(dataset is not None, f"{where} is not there")
    require(dataset.shape == (count,) and dataset.dtype == numpy.dtype(STORED[dtype]), f"{where} is {dataset}")
    require(text(dataset.attrs["dtype"]) == dtype, f"{where}: attribute dtype")
    require(list(numpy.atleast_1d(dataset.attrs["global_shape"])) == shape if shape else True, f"{where}: global_shape")
    require(int(dataset.attrs["offset"]) == offset and int(dataset.attrs["count"]) == count, f"{where}: offset, count")
    if extent != shape:
        require(list(dataset.attrs["box_begin"]) == begin and list(dataset.attrs["box_extent"]) == extent, f"{where}: box")
    require(dataset.id.get_offset() == position, f"{where} lies at {dataset.id.get_offset()}, not {position}")
    values = dataset[()]
    data, block = values.tobytes(), manifest["block_bytes"]
    require(len(checksums) == -(-len(data) // block), f"{where}: number of checksums")
    for i, expected in enumerate(checksums):
        require(crc32c(data[i * block:(i + 1) * block]) == expected, f"{where}: block {i} has another CRC32C")
    return index, offset, values


def read_tensors(manifest, files):
    """All tensors by (kind, name), whole, as they are stored."""
    dtypes = [STORED[dtype] for _, _, dtype, _ in manifest["tensors"]]
    boxes = [numpy.zeros(int(numpy.prod(extent)), dtypes[tensor]) for tensor, _, extent in manifest["boxes"]]
    stored = [0] * len(boxes)
    for slice_ in manifest["slices"]:
        index, offset, values = check_slice(manifest, files, slice_)
        boxes[index][offset:offset + len(values)] = values
        stored[index] += len(values)
    tensors = [numpy.zeros(shape, dtype) for (_, _, _, shape), dtype in zip(manifest["tensors"], dtypes)]
    covered = [numpy.zeros(tensor.shape, int) for tensor in tensors]
    for (tensor, begin, extent), values, number in zip(manifest["boxes"], boxes, stored):
        require(number == len(values), f"a box of {manifest['tensors'][tensor][:2]}: {number} of {len(values)} are stored")
        place = tuple(slice(b, b + e) for b, e in zip(begin, extent))
        tensors[tensor][place] = values.reshape(extent)
        covered[tensor][place] += 1
    for times, (kind, name, _, _) in zip(covered, manifest["tensors"]):
        require((times == 1).all(), f"{kind} {name}: boxes leave out elements or share them")
    return {(row[0], row[1]): (row, tensor.reshape(-1)) for row, tensor in zip(manifest["tensors"], tensors)}


def count_datasets(file):
    number = 0

    def visit(_, item):
        nonlocal number
        number += isinstance(item, h5py.Dataset)
    file.visititems(visit)
    return number


def as_float32(dtype, values):
    if dtype == "BF16":
        return (values.astype("<u4") << 16).view("<f4")
    return values.astype("<f4")


def check_export(tensors, path):
    data = path.read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + header_bytes])
    header.pop("__metadata__", None)
    masters = {name: value for (kind, name), value in tensors.items() if kind == "master"}
    require(sorted(masters) == sorted(header), "the export has other tensors than the checkpoint's masters")
    for name, ((_, _, dtype, shape), values) in masters.items():
        entry = header[name]
        begin, end = entry["data_offsets"]
        exported = data[8 + header_bytes + begin:8 + header_bytes + end]
        require(entry["dtype"] == "F32" and entry["shape"] == shape, f"{name}: dtype or shape of the export")
        require(as_float32(dtype, values).tobytes() == exported, f"{name}: the export has other values")


def check_h5dump(manifest, folder):
    """Every dataset of every file with its path, from the nested blocks that h5dump prints."""
    for i, (name, _, _) in enumerate(manifest["files"]):
        listing = subprocess.run(["h5dump", "-H", str(folder / name)], check=True, capture_output=True, text=True).stdout
        path, depth, listed = [], 0, set()
        for line in listing.splitlines():
            opened = re.match(r'\s*(GROUP|DATASET) "(.*)" \{', line)
            if opened:
                path.append((depth, opened[2].strip("/")))
                if opened[1] == "DATASET":
                    listed.add("/".join(part for _, part in path if part))
            depth += line.count("{") - line.count("}")
            while path and depth <= path[-1][0]:
                path.pop()
        expected = {dataset_path(manifest, s) for s in manifest["slices"] if s[1] == i}
        require(listed == expected, f"h5dump -H {name} lists {len(listed)} datasets, the manifest has {len(expected)}")


def main():
    folder, exported = map(pathlib.Path, sys.argv[1:])
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    files = [h5py.File(folder / name, "r") for name, _, _ in manifest["files"]]
    tensors = read_tensors(manifest, files)
    require(sum(map(count_datasets, files)) == len(manifest["slices"]), "the files hold datasets that no slice names")
    check_export(tensors, exported)
    if shutil.which("h5dump"):
        check_h5dump(manifest, folder)
    print(f"{len(tensors)} tensors in {len(manifest['slices'])} datasets are as manifest and export have them")


main()
