#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times steps of the whole program on one and two ranks, by strategy, in turns; and holds bytes and memory to the formulas.

    python3 tests/bench/mesh.py [--build build] [--rounds 3] [--steps 8] [--micro-batch 2]

A Llama of 26M parameters (512 wide, 8 blocks) with random weights, sequences of 512 tokens, one thread a rank, one
micro-batch a rank and step (weak scaling). Prints for each arrangement: median step, the part of it in which the ranks
waited for communication, bytes that rank 0 sent beside what the formula says, and peak memory of tensors and process beside
the plan.
Needs no Python packages; mpirun, and as many cores as ranks.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile

import material

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDE, BLOCKS, FORWARD = material.WIDE, material.BLOCKS, material.FORWARD
ARRANGEMENTS = [
    # name, ranks, overrides
    ("1 rank", 1, []),
    ("1 rank, topology", 1, ['train.determinism="topology"']),
    ("FULL_SHARD", 2, ['parallel.sharding="FULL_SHARD"']),
    ("FULL_SHARD, no overlap", 2, ['parallel.sharding="FULL_SHARD"', "parallel.overlap=false"]),
    ("FULL_SHARD, topology", 2, ['parallel.sharding="FULL_SHARD"', 'train.determinism="topology"']),
    ("FULL_SHARD, reduce bf16", 2, ['parallel.sharding="FULL_SHARD"', 'parallel.reduce_dtype="bf16"']),
    ("FULL_SHARD, LAYER", 2, ['parallel.sharding="FULL_SHARD"', 'parallel.bucket="LAYER"']),
    ("SHARD_GRAD_OP", 2, ['parallel.sharding="SHARD_GRAD_OP"']),
    ("NO_SHARD", 2, ['parallel.sharding="NO_SHARD"']),
    ("NO_SHARD, no overlap", 2, ['parallel.sharding="NO_SHARD"', "parallel.overlap=false"]),
    ("FULL_SHARD, selective", 2, ['parallel.sharding="FULL_SHARD"', 'train.activation_checkpointing="selective"']),
    ("FULL_SHARD, full", 2, ['parallel.sharding="FULL_SHARD"', 'train.activation_checkpointing="full"']),
]


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=str(ROOT / "build"))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--micro-batch", type=int, default=2)
    p.add_argument("--only", default="", help="arrangements whose name contains this")
    return p.parse_args()


def run(args, folder, ranks, overrides):
    shutil.rmtree(folder / "out", ignore_errors=True)
    command = ["bash", str(ROOT / "tests/support/mpirun.sh"), str(ranks), f"{args.build}/finetune",
               str(folder / "deck.toml"), f"train.max_steps={args.steps}", f"train.micro_batch={args.micro_batch}",
               f"train.global_batch={args.micro_batch * ranks}", f"metrics.log_steps={args.steps}"] + overrides
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    rows = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
    times = next(row for row in rows if "times" in row)
    memory = re.search(r"planned (\S+ \S+), of which tensors (\S+ \S+); used by tensors (\S+ \S+), by the process (\S+ \S+)",
                       done.stdout)
    # The first steps fill buffers and caches.
    steps = [row["step_s"] for row in rows if "loss" in row][2:]
    return {"step_s": statistics.median(steps), "exposed_s": times["times"]["exposed_s"][1],
            "sent": sum(times["sent_bytes"].values()), "memory": memory.groups(),
            "loss": [row["loss"] for row in rows if "loss" in row][-1]}


def formula(ranks, overrides, vocabulary):
    """Bytes a rank sends in a step of one micro-batch, padding left out."""
    if ranks == 1:
        return 0
    block = 4 * WIDE * WIDE + 3 * WIDE * FORWARD + 2 * WIDE
    embedding, head = vocabulary * WIDE, vocabulary * WIDE + WIDE
    whole = BLOCKS * block + embedding + head
    text = " ".join(overrides)
    gradient = 8 if "topology" in text else 2 if "reduce_dtype" in text else 4
    others = (ranks - 1) / ranks
    if "NO_SHARD" in text:
        return 2 * others * gradient * whole
    again = 0 if "SHARD_GRAD_OP" in text else (BLOCKS - 1) * block
    return others * (2 * (whole + again) + gradient * whole)


def main():
    args = parse()
    arrangements = [a for a in ARRANGEMENTS if args.only in a[0]]
    results = {name: [] for name, _, _ in arrangements}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        vocabulary = material.make_run(folder)
        for _ in range(args.rounds):
            for name, ranks, overrides in arrangements:
                results[name].append(run(args, folder, ranks, overrides))
    base = statistics.median(r["step_s"] for r in results[arrangements[0][0]])
    print(f"{'arrangement':26} {'step s (range)':26} {'efficiency':>10} {'waiting s':>10} {'sent MB':>9} {'formula':>9}"
          f" {'tensors':>9} {'planned':>9} {'process':>9} {'planned':>9}")
    for name, ranks, overrides in arrangements:
        rounds = results[name]
        steps = sorted(r["step_s"] for r in rounds)
        median = statistics.median(steps)
        planned_process, planned, tensors, process = rounds[0]["memory"]
        print(f"{name:26} {median:6.3f} ({steps[0]:.3f} to {steps[-1]:.3f})     {base / median:10.2f}"
              f" {statistics.median(r['exposed_s'] for r in rounds):10.3f} {rounds[0]['sent'] / 1e6:9.2f}"
              f" {formula(ranks, overrides, vocabulary) / 1e6:9.2f} {tensors:>9} {planned:>9} {process:>9} {planned_process:>9}")


if __name__ == "__main__":
    main()
