# SPDX-License-Identifier: Apache-2.0
"""Where the seeds of the fuzz targets lie."""

import pathlib

HERE = pathlib.Path(__file__).parent / "seeds"


def put(target, name, content):
    folder = HERE / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
