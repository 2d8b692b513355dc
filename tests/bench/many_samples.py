#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts with very many samples: seconds until the first step, and memory that cannot be taken back, of each rank.

    python3 tests/bench/many_samples.py [--samples 10000000] [--files 8] [--ranks 1] [--threads 1] [--folder DIR] [--build build]

Sums as text ("512 + 381 =", " 893"), some 46 bytes each, packed, into the quickstart's model. The first start tokenises, the
second finds the tokens in the cache, with files in the page cache. 10^8 samples need 13 GB in --folder. Linux alone: memory is
RssAnon of /proc, the most of all ranks; pages of mapped files go where others need them.
"""
import argparse
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DECK = """
[model]
path = "{model}"
[data]
path = "{data}"
cache_dir = "{cache}"
max_seq_length = 128
packing = true
[train]
output = "{output}"
max_steps = 2
global_batch = 16
"""


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--samples", type=int, default=10_000_000)
    p.add_argument("--files", type=int, default=8)
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--folder", default=None)
    p.add_argument("--build", default=str(ROOT / "build"))
    return p.parse_args()


def write(data, samples, files):
    draw = random.Random(0)
    for i in range(files):
        with open(data / f"train-{i:05}.jsonl", "w", buffering=1 << 20) as out:
            for _ in range(samples * i // files, samples * (i + 1) // files):
                a, b = draw.randrange(1000), draw.randrange(1000)
                out.write(f'{{"prompt": "{a} + {b} =", "completion": " {a + b}"}}\n')


def anonymous_kib(output):
    """The most of all processes whose command line names the output."""
    most = 0
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if output.encode() not in (folder / "cmdline").read_bytes() or (folder / "comm").read_text() != "finetune\n":
                continue
            for line in (folder / "status").read_text().splitlines():
                if line.startswith("RssAnon"):
                    most = max(most, int(line.split()[1]))
        except OSError:
            continue
    return most


def start(args, deck, output):
    shutil.rmtree(output, ignore_errors=True)
    command = [f"{args.build}/finetune", deck, f"train.output={output}"]
    if args.ranks > 1:
        command = ["mpirun", "--oversubscribe", "-n", str(args.ranks)] + command
    begin, most, first = time.perf_counter(), 0, None
    log = output.with_suffix(".log")
    with open(log, "w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=os.environ | {"OMP_NUM_THREADS": str(args.threads)})
        while process.poll() is None:
            most = max(most, anonymous_kib(str(output)))
            if first is None and "\nstep 1/" in log.read_text():
                first = time.perf_counter() - begin
            time.sleep(0.05)
    assert process.returncode == 0, log.read_text()
    return first, most / 1024


def main():
    args = parse()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = pathlib.Path(name)
        (folder / "data").mkdir()
        write(folder / "data", args.samples, args.files)
        deck = folder / "deck.toml"
        deck.write_text(DECK.format(model=ROOT / "inputs/quickstart/model", data=folder / "data", cache=folder / "cache", output=folder / "out"))
        print(f"{args.samples:,} samples, {args.files} files, {args.ranks} ranks of {args.threads} threads", flush=True)
        for what in ("tokenises", "finds its tokens", "again"):
            seconds, mib = start(args, deck, folder / "out")
            print(f"  {what:18} first step after {seconds:7.1f} s, memory of a rank {mib:6.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
