# SPDX-License-Identifier: Apache-2.0
"""Writes samples-FORMAT.tar: the same samples in each format of Python's tarfile. Run by python3, without arguments."""

import io
import json
import pathlib
import tarfile

LONG = "a-name-of-many-letters/" * 5 + "0003"  # more than a header holds
FILES = [
    ("shard/0001.json", json.dumps({"prompt": "1+1=", "completion": "2"})),
    ("shard/0001.jpg", "no text"),
    ("shard/0002.txt", "a caption, é"),
    ("shard/0002.json", json.dumps({"n": 2})),
    ("shard/._0002.json", "not a sample"),
    (LONG + ".json", json.dumps({"n": 3})),
    (LONG + ".cls", "7"),
    ("0004.é.json", "its ending is not .json"),
    ("0005.json", json.dumps({"text": "x" * 1500})),
]

for name, kind in [("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)]:
    path = pathlib.Path(__file__).with_name(f"samples-{name}.tar")
    with tarfile.open(path, "w", format=kind) as archive:
        folder = tarfile.TarInfo("shard")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for member, text in FILES:
            info = tarfile.TarInfo(member)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
