#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times saves and resumes of the whole program beside dd on the same disk, in turns.

    python3 tests/bench/checkpoint.py [--build build] [--folder FOLDER] [--rounds 5] [--ranks 1 2] [--layers 8]

A Llama of 60M parameters (768 wide, 8 blocks; each further block adds 7M) with random weights, whose checkpoint has 0.7 GB.
A round for each number of ranks: a run that saves while it trains (checkpoint.async); dd of the same bytes with conv=fsync;
a run that continues from there and saves with training stopped (async = false); dd of the same file to /dev/null; and
`finetune verify`. Figures of saves and resumes are the run's own, from its metrics.jsonl.

Before everything that reads, the checkpoint is dropped from the page cache with posix_fadvise(DONTNEED); how much of it mincore
still finds there is printed. A virtual disk may have it in a cache of its host: then dd is as fast as the program may be.
Needs no Python packages; mpirun, and as many cores as ranks. FOLDER is on the disk to be measured, with 4 GB free.
"""
import argparse
import ctypes
import json
import mmap
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import material

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDE, FORWARD, SEQUENCE = 768, 2048, 64


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=str(ROOT / "build"))
    p.add_argument("--folder", default=".", help="on the disk to be measured")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--json", help="file for all figures of all rounds")
    return p.parse_args()


def make_material(folder, layers):
    """A model folder without weights, and text to train on, from the quickstart's."""
    model = folder / "model"
    material.make_model(model, hidden_size=WIDE, num_hidden_layers=layers, intermediate_size=FORWARD,
                        num_attention_heads=12, num_key_value_heads=12)
    material.make_text(folder / "text.txt")
    (folder / "deck.toml").write_text(
        f'[model]\npath = "{model}"\ninit = "random"\n[data]\npath = "{folder}/text.txt"\nformat = "text"\n'
        f'max_seq_length = {SEQUENCE}\n[train]\noutput = "{folder}/out"\nmicro_batch = 1\nmax_steps = 60\n'
        f'[metrics]\nlog_steps = 1000000\n')


def train(args, folder, ranks, overrides):
    """Runs and returns the rows of metrics.jsonl about saves and resumes that this start wrote."""
    metrics = folder / "out/metrics.jsonl"
    command = ["bash", str(ROOT / "tests/support/mpirun.sh"), str(ranks), f"{args.build}/finetune",
               str(folder / "deck.toml"), f"train.global_batch={ranks}", *overrides]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode not in (0, 75):
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [row for row in rows if "checkpoint" in row or "resume" in row]


def dd(words):
    start = time.monotonic()
    subprocess.run(["dd", "bs=1M", *words], check=True, capture_output=True)
    return time.monotonic() - start


def drop(paths):
    """Drops files from the page cache; returns the part of their pages that is still there."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    pages = resident = 0
    for path in paths:
        size = path.stat().st_size
        with open(path, "r+b") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
                number = -(-size // mmap.PAGESIZE)
                found = (ctypes.c_ubyte * number)()
                first = ctypes.c_char.from_buffer(mapped)
                libc.mincore(ctypes.addressof(first), size, found)
                del first
                pages += number
                resident += sum(byte & 1 for byte in bytes(found))
    return resident / pages


def one_round(args, folder, ranks):
    shutil.rmtree(folder / "out", ignore_errors=True)
    # Far enough apart that no save waits for the one before.
    saves = train(args, folder, ranks, ["train.stop_after_steps=44", "checkpoint.save_steps=15", "checkpoint.async=true"])
    first, background = (row["checkpoint"] for row in saves if row["step"] in (15, 30))
    files = sorted((folder / "out/step-0000000044").glob("*.h5"))
    copy = folder / "dd.bin"
    figures = {"dd_write_s": sum(dd([f"if={file}", f"of={copy}", "conv=fsync"]) for file in files)}
    copy.unlink()
    figures["bytes"] = sum(file.stat().st_size for file in files)
    figures["resident"] = drop(files)
    figures["dd_read_s"] = sum(dd([f"if={file}", "of=/dev/null"]) for file in files)
    figures["resident"] = max(figures["resident"], drop(files))
    rows = train(args, folder, ranks, ["train.stop_after_steps=2", "checkpoint.save_steps=0", "checkpoint.async=false"])
    resume = next(row["resume"] for row in reversed(rows) if "resume" in row)
    stopped = next(row["checkpoint"] for row in reversed(rows) if row["step"] == 46 and "checkpoint" in row)
    drop(files)
    start = time.monotonic()
    subprocess.run([f"{args.build}/finetune", "verify", str(files[0].parent)], check=True, capture_output=True)
    figures.update(verify_s=time.monotonic() - start, first=first, background=background, stopped=stopped, resume=resume)
    return figures


def line(name, values, unit, aim):
    values = sorted(values)
    print(f"  {name:58} {statistics.median(values):7.3f} ({values[0]:.3f} to {values[-1]:.3f}) {unit:5} {aim}")


def report(ranks, rounds):
    def each(function):
        return [function(r) for r in rounds]
    size = rounds[0]["bytes"]
    print(f"{ranks} rank{'s' if ranks > 1 else ''}, {size / 1e9:.3f} GB in files, {len(rounds)} rounds: median (range)")
    dd_rate = each(lambda r: r["bytes"] / r["dd_write_s"])
    line("dd, conv=fsync", [rate / 1e9 for rate in dd_rate], "GB/s", "")
    for name in ("stopped", "background"):
        label = "training stopped" if name == "stopped" else "while training"
        line(f"save, {label}: written and synced",
             each(lambda r: r[name]["bytes"] / r[name]["write_s"] / 1e9), "GB/s", "")
        line("  of dd", each(lambda r: r[name]["bytes"] / r[name]["write_s"] / (r["bytes"] / r["dd_write_s"])), "",
             "aim: 0.8 or more" if name == "stopped" else "")
        line("  whole, until it counts", each(lambda r: r[name]["total_s"]), "s", "")
    line("save while training: training waits", each(lambda r: r["background"]["blocked_s"]), "s", "")
    line("  of the whole", each(lambda r: r["background"]["blocked_s"] / r["background"]["total_s"]), "",
         "aim: 0.1 or less")
    line("  the first save, into memory that is new", each(lambda r: r["first"]["blocked_s"]), "s", "")
    line("dd to /dev/null", each(lambda r: r["bytes"] / r["dd_read_s"] / 1e9), "GB/s", "")
    line("resume: reading", each(lambda r: r["resume"]["read_s"]), "s", "")
    line("  of what dd takes for these bytes",
         each(lambda r: r["resume"]["read_s"] / (r["resume"]["bytes"] * r["dd_read_s"] / r["bytes"])), "",
         "aim: 1.2 or less")
    line("  bytes read of bytes there", each(lambda r: r["resume"]["bytes"] / r["bytes"]), "", "")
    line("verify, start of the program included", each(lambda r: r["bytes"] / r["verify_s"] / 1e9), "GB/s", "")
    print(f"  at most {100 * max(r['resident'] for r in rounds):.1f} % of the files was in the page cache before reading")


def main():
    args = parse()
    results = {ranks: [] for ranks in args.ranks}
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="checkpoint-bench.") as name:
        folder = pathlib.Path(name).resolve()
        make_material(folder, args.layers)
        for _ in range(args.rounds):
            for ranks in args.ranks:
                results[ranks].append(one_round(args, folder, ranks))
    for ranks, rounds in results.items():
        report(ranks, rounds)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
