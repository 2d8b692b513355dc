#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times steps of the whole program with those of another version of it, in turns: is anything slower than before?

    git worktree add ../before COMMIT && (cd ../before && jobscripts/local.sh build)
    python3 tests/bench/before.py --before ../before/build [--build build] [--rounds 5] [--steps 12]

A Llama of 26M parameters with random weights, 2 x 512 tokens a rank and step. Prints for each arrangement the median
step of either, and this version's part of the other's time: of the medians of all steps, and of the quickest
quarters, on which other work on the machine weighs less. Both must end with the same loss, or the run stops.
Needs no Python packages; mpirun, and as many cores as ranks.
"""
import argparse
import pathlib
import statistics
import tempfile

import material

ROOT = pathlib.Path(__file__).resolve().parents[2]
LORA = ['adapter.name="lora"']
ARRANGEMENTS = [
    # name, ranks, threads a rank, overrides
    ("full, bf16", 1, 2, []),
    ("full, fp32", 1, 2, ['precision.mode="32-true"']),
    ("lora, bf16", 1, 2, LORA),
    ("lora, dropout", 1, 2, LORA + ["adapter.lora_dropout=0.1"]),
    ("full, recomputed", 1, 2, ['train.activation_checkpointing="full"']),
    ("full, 2 ranks", 2, 1, ['parallel.sharding="FULL_SHARD"']),
    ("full, 2 ranks, topology", 2, 1, ['parallel.sharding="FULL_SHARD"', 'train.determinism="topology"']),
]


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--before", required=True, help="build folder of the other version")
    p.add_argument("--build", default=str(ROOT / "build"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--only", default="", help="arrangements whose name contains this")
    return p.parse_args()


def run(args, build, folder, ranks, threads, overrides):
    """Seconds of each step but the first two, which fill buffers and caches; and the last loss."""
    rows = material.train(build, folder, ranks, threads, args.steps, overrides)
    return [row["step_s"] for row in rows][2:], rows[-1]["loss"]


def main():
    args = parse()
    print(f"{'arrangement':26} {'before s':>9} {'now s':>9} {'medians':>9} {'quickest':>9}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        material.make_run(folder)
        for name, ranks, threads, overrides in ARRANGEMENTS:
            if args.only not in name:
                continue
            steps, losses = {args.before: [], args.build: []}, set()
            for turn in range(args.rounds):
                # Who goes first alternates, so that a machine that slows down favours nobody.
                for build in sorted(steps, reverse=bool(turn % 2)):
                    seconds, loss = run(args, build, folder, ranks, threads, overrides)
                    steps[build] += seconds
                    losses.add(loss)
            if len(losses) != 1:
                raise SystemExit(f"{name}: the versions end with different losses: {sorted(losses)}")
            before, now = steps[args.before], steps[args.build]
            print(f"{name:26} {statistics.median(before):9.4f} {statistics.median(now):9.4f}"
                  f" {statistics.median(now) / statistics.median(before):9.3f}"
                  f" {material.quickest_quarter(now) / material.quickest_quarter(before):9.3f}", flush=True)


if __name__ == "__main__":
    main()
