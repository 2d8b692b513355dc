#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps as `finetune plan --machine` plans them beside steps as they are measured, in turns.

    python3 tests/bench/plan_time.py [--machine FILE] [--build build] [--rounds 3] [--steps 8] [--only NAME]

Llamas of several sizes with random weights, sequences of several lengths, all weights and LoRA, one and two ranks of one
thread each. Without --machine the rates are measured at the start of each round, by `finetune check --save` on as many
ranks. Prints for each deck the median step and its range, the median of the planned ones, and their ratio; and the processor
time that ranks spent on a step, which is what to look at while others use the cores: of one rank it is the step on a machine
of its own. At the end: how many lie within 15 %.
Needs no Python packages; mpirun, and as many cores as ranks.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import tempfile

import material

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZES = {"5M": (256, 4, 704), "26M": (512, 8, 1408), "60M": (768, 8, 2048)}  # width, blocks, feed-forward
LORA = ['adapter.name="lora"', "adapter.lora_r=16"]
FP32 = ['precision.mode="32-true"']
DECKS = [
    # name, size, sequence, micro-batch, micro-batches a rank, ranks, overrides
    ("5M, 256", "5M", 256, 4, 1, 1, []),
    ("26M, 256", "26M", 256, 4, 1, 1, []),
    ("26M, 512", "26M", 512, 2, 1, 1, []),
    ("26M, 1024", "26M", 1024, 1, 1, 1, []),
    ("26M, 512, fp32", "26M", 512, 2, 1, 1, FP32),
    ("26M, 512, 4 passes", "26M", 512, 1, 4, 1, []),
    ("26M, 512, recomputed", "26M", 512, 2, 1, 1, ['train.activation_checkpointing="full"']),
    ("60M, 512", "60M", 512, 2, 1, 1, []),
    ("26M, 512, LoRA", "26M", 512, 2, 1, 1, LORA),
    ("60M, 512, LoRA", "60M", 512, 2, 1, 1, LORA),
    ("26M, 512, 2 ranks", "26M", 512, 2, 1, 2, ['parallel.sharding="FULL_SHARD"']),
    ("26M, 512, 2 ranks, no overlap", "26M", 512, 2, 1, 2, ['parallel.sharding="FULL_SHARD"', "parallel.overlap=false"]),
    ("26M, 512, 2 ranks, NO_SHARD", "26M", 512, 2, 1, 2, ['parallel.sharding="NO_SHARD"']),
    ("26M, 512, 2 ranks, LoRA", "26M", 512, 2, 1, 2, ['parallel.sharding="FULL_SHARD"'] + LORA),
]


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=str(ROOT / "build"))
    p.add_argument("--machine", default="", help="a file with the table [machine]; else it is measured")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--only", default="", help="decks whose name contains this")
    return p.parse_args()


def make_material(folder):
    """Model folders without weights, and text to train on, from the quickstart's."""
    for size, (width, blocks, forward) in SIZES.items():
        material.make_model(folder / size, hidden_size=width, num_hidden_layers=blocks, intermediate_size=forward,
                            num_attention_heads=width // 64, num_key_value_heads=width // 64,
                            max_position_embeddings=2048)
    material.make_text(folder / "text.txt")
    (folder / "deck.toml").write_text(
        f'[model]\npath = "{folder}/26M"\ninit = "random"\n[data]\npath = "{folder}/text.txt"\nformat = "text"\n'
        f'[train]\noutput = "{folder}/out"\n[metrics]\nlog_steps = 1000000\n')


def words_of(folder, deck, steps):
    _, size, length, micro_batch, passes, ranks, overrides = deck
    return [str(folder / "deck.toml"), f'model.path="{folder}/{size}"', f"data.max_seq_length={length}",
            f"train.max_steps={steps}", f"train.micro_batch={micro_batch}",
            f"train.global_batch={micro_batch * passes * ranks}"] + overrides


def call(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def launch(args, ranks):
    program = f"{args.build}/finetune"
    return [program] if ranks == 1 else ["bash", str(ROOT / "tests/support/mpirun.sh"), str(ranks), program]


def measure_machine(args, folder, ranks):
    """Ranks share memory and caches: the rates of a job are those of as many as it has."""
    file = folder / f"machine-{ranks}.toml"
    deck = next(deck for deck in DECKS if deck[5] == ranks)
    words = words_of(folder, deck, args.steps)
    call(launch(args, ranks) + ["check", words[0]] + words[1:] + ["--save", str(file)])
    rates = re.findall(r"^(\w+) = ([0-9.e+-]+)$", file.read_text(), re.M)
    print(f"{ranks} ranks: " + ", ".join(f"{key} {float(value):.4g}" for key, value in rates if float(value) > 0), flush=True)
    return file


def planned(args, folder, machine, deck):
    out, _ = call([f"{args.build}/finetune", "plan"] + words_of(folder, deck, args.steps) +
                  ["--machine", str(machine), "--ranks", str(deck[5]), "--ranks-per-node", str(deck[5])])
    value, unit = re.search(r"^  step +([0-9.e+]+) (us|ms|s|min|h)$", out, re.M).groups()
    return float(value) * {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}[unit]


def measured(args, folder, deck):
    """Median step, and processor seconds a rank and step: those of a long run without those of a short one."""
    seconds = []
    for steps in (2, args.steps + 2):
        shutil.rmtree(folder / "out", ignore_errors=True)
        seconds.append(call(launch(args, deck[5]) + words_of(folder, deck, steps))[1])
    rows = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
    # The first steps fill buffers and caches.
    steps = [row["step_s"] for row in rows if "loss" in row][2:]
    return statistics.median(steps), (seconds[1] - seconds[0]) / args.steps / deck[5]


def main():
    args = parse()
    decks = [deck for deck in DECKS if args.only in deck[0]]
    results, planned_s = {deck[0]: [] for deck in decks}, {deck[0]: [] for deck in decks}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_material(folder)
        for _ in range(args.rounds):
            machines = {ranks: args.machine or measure_machine(args, folder, ranks) for ranks in {deck[5] for deck in decks}}
            for deck in decks:
                planned_s[deck[0]].append(planned(args, folder, machines[deck[5]], deck))
                results[deck[0]].append(measured(args, folder, deck))
    print(f"{'deck':32} {'planned s':>10} {'measured s (range)':>28} {'ratio':>6} {'processor s':>12} {'ratio':>6}")
    near = 0
    for deck in decks:
        steps = sorted(step for step, _ in results[deck[0]])
        median, busy = statistics.median(steps), statistics.median(cpu for _, cpu in results[deck[0]])
        plan = statistics.median(planned_s[deck[0]])
        near += abs(plan / median - 1) <= 0.15
        print(f"{deck[0]:32} {plan:10.3f} {median:10.3f} ({steps[0]:.3f} to {steps[-1]:.3f}) {plan / median:6.2f}"
              f" {busy:12.3f} {plan / busy:6.2f}")
    print(f"{near} of {len(decks)} steps within 15 % of the plan")


if __name__ == "__main__":
    main()
