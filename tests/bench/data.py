#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the way of samples from files to steps: tokenising into the cache on one and two ranks, starts from the cache, and
steps packed against padded.

    python3 tests/bench/data.py [--build build] [--rounds 3] [--samples 40000] [--steps 12]

Instructions of very different lengths (8 to 400 words, most of them short) out of the quickstart's words, a tiny Llama with
random weights, one thread a rank. Arrangements in turns; prints medians and the range of the rounds.
Needs no Python packages; mpirun, and as many cores as ranks.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEQUENCE = 1024


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=str(ROOT / "build"))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--samples", type=int, default=40000)
    p.add_argument("--steps", type=int, default=12)
    return p.parse_args()


def make_material(folder, num_samples):
    source = ROOT / "inputs/quickstart"
    model = folder / "model"
    model.mkdir()
    config = json.loads((source / "model/config.json").read_text())
    config["max_position_embeddings"] = 2048
    (model / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / "model" / name, model / name)
    words = " ".join(" ".join(str(v) for v in s.values()) for s in json.loads((source / "train.json").read_text())).split()
    dice = random.Random(7)
    with open(folder / "data.jsonl", "w") as file:
        for _ in range(num_samples):
            length = 8 + int(392 * dice.random() ** 4)
            text = [dice.choice(words) for _ in range(length)]
            cut = length // 3
            file.write(json.dumps({"instruction": " ".join(text[:cut]), "output": " ".join(text[cut:])}) + "\n")
    (folder / "deck.toml").write_text(
        f'[model]\npath = "{model}"\ninit = "random"\n[data]\npath = "{folder}/data.jsonl"\n'
        f'max_seq_length = {SEQUENCE}\n[train]\noutput = "{folder}/out"\n[checkpoint]\nsave_steps = 0\n')


def run(args, folder, ranks, overrides):
    shutil.rmtree(folder / "out", ignore_errors=True)
    command = ["bash", str(ROOT / "tests/support/mpirun.sh"), str(ranks), f"{args.build}/finetune",
               str(folder / "deck.toml"), *overrides]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode not in (0, 75):
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]


def spread(values, form="{:.3g}"):
    return f"{form.format(statistics.median(values))} ({form.format(min(values))} to {form.format(max(values))})"


def main():
    args = parse()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="finetune-data-"))
    try:
        make_material(folder, args.samples)
        megabytes = (folder / "data.jsonl").stat().st_size / 1e6
        loads = {(ranks, kept): [] for ranks in (1, 2) for kept in (False, True)}
        seconds = {True: [], False: []}
        facts = {}
        short = ["train.max_steps=1", "train.global_batch=2"]
        # As many positions a step: four sequences of 1024 packed, as many samples as fill them padded.
        for _ in range(args.rounds):
            for ranks in (1, 2):
                shutil.rmtree(folder / "token-cache", ignore_errors=True)
                for kept in (False, True):
                    data = run(args, folder, ranks, short)[0]["data"]
                    assert data["was_cached"] == kept
                    loads[ranks, kept].append(data["load_s"])
            for packed in (True, False):
                batch = 4 if packed else 4 * facts.get("samples_a_sequence", 1)
                rows = run(args, folder, 1, [f"train.max_steps={args.steps}", f"train.global_batch={batch}",
                                             f"train.micro_batch={1 if packed else 4}", f"data.packing={str(packed).lower()}"])
                data = rows[0]["data"]
                facts[packed] = data
                if packed:
                    facts["samples_a_sequence"] = max(1, round(data["samples"] / data["sequences"]))
                steps = [row for row in rows if "loss" in row][2:]
                seconds[packed].append(sum(row["step_s"] for row in steps) / sum(row["tokens"] for row in steps) * 1e6)
        for (ranks, kept), values in loads.items():
            rate = "" if kept else f", {spread([args.samples / v for v in values])} samples/s, " \
                                   f"{spread([megabytes / v for v in values])} MB/s"
            print(f"{ranks} rank{'s' if ranks > 1 else ''}, {'kept tokens' if kept else 'tokenise and keep'}: "
                  f"{spread(values)} s{rate}")
        packed = facts[True]
        print(f"packing: {packed['samples']} samples in {packed['sequences']} sequences, "
              f"{100 * packed['packing_efficiency']:.2f} % full")
        for packs in (True, False):
            print(f"{'packed' if packs else 'padded'}: {spread(seconds[packs])} s a million tokens, padding "
                  f"{100 * facts[packs]['padding']:.1f} %")
        print(f"packed over padded, tokens a second: {spread([b / a for a, b in zip(seconds[True], seconds[False])])}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
