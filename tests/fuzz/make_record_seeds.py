#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the targets that read data and configurations of other programs, as make_seeds.py does for the rest."""

import io
import tarfile

from seed_folder import HERE, put


def import_seeds():
    folder = HERE.parent.parent / "golden/migrate"
    for path in sorted([*folder.glob("*.y*ml"), *folder.glob("*.json")]):
        put("import", path.name, path.read_text(encoding="utf-8"))
    put("import", "aliases", "a: &a [1, 2]\n" + "\n".join(f"b{i}: &b{i} [*{'a' if i == 0 else f'b{i - 1}'}, *a]" for i in range(9)))
    put("import", "interpolated", "model: ${model}\nadapter: ${env:HOME}\nbase_model: ${base_model}${base_model}\n")


def table_seeds():
    put("table", "rows", 'question,answer\n1+1?,2\n"a ""b"", c","two\nlines"\n')
    put("table", "carriage_returns", "a,b\r\n1,2\r\n\r\n3,4")
    put("table", "tabs", "\ta\tb\n1\t2\n")
    put("table", "byte_order_mark", b"\xef\xbb\xbfa,b\n1,\xff\n")
    put("table", "open_quote", 'a,b\n"1,2\n')


def archive_seeds():
    def archive(members, form):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=form) as tar:
            for name, content in members:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        content = out.getvalue().rstrip(b"\0")
        return content + bytes(-len(content) % 512 + 1024)

    members = [("a/1.json", b'{"text": "x"}'), ("a/1.txt", b"y"), ("a/2.json", b'{"n": 1}'), ("a/2.jpg", b"z")]
    long = [("n" * 150 + "/1.json", b"{}")]
    put("archive", "ustar", archive(members, tarfile.USTAR_FORMAT))
    put("archive", "gnu", archive(long, tarfile.GNU_FORMAT))
    put("archive", "pax", archive(long, tarfile.PAX_FORMAT))
    large = bytearray(archive(members[:1], tarfile.GNU_FORMAT))
    large[124:136] = b"\x80" + b"\x7f" * 11
    put("archive", "size_beyond_64_bits", bytes(large))


def golden_seeds():
    folder = HERE.parent.parent / "golden/data"
    for name in ["uint16", "int32"]:
        put("megatron", name, (folder / f"megatron-{name}.idx").read_bytes())
    for name in ["texts", "tokens", "bytes"]:
        put("mds", name, (folder / f"mds-{name}/shard.00000.mds").read_bytes())
    for name in ["arrow-lz4.feather", "arrow-zstd.feather", "arrow-uncompressed.feather", "arrow-saved/test/data-00000-of-00001.arrow"]:
        put("arrow", name.replace("/", "-"), (folder / name).read_bytes())
    for path in sorted(folder.glob("rows-*.parquet")):
        put("parquet", path.name, path.read_bytes())


golden_seeds()
import_seeds()
table_seeds()
archive_seeds()
