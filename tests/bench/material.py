# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks of the whole program train: models without weights and text, from the quickstart's."""
import json
import os
import pathlib
import shutil
import statistics
import subprocess

WIDE, BLOCKS, FORWARD, SEQUENCE = 512, 8, 1408, 512
SOURCE = pathlib.Path(__file__).resolve().parents[2] / "inputs/quickstart"


def make_model(model, **sizes):
    """A folder with a config.json of these sizes and a tokenizer. Returns the configuration."""
    model.mkdir()
    config = json.loads((SOURCE / "model/config.json").read_text())
    config.update(tie_word_embeddings=False, **sizes)
    config.pop("head_dim", None)
    (model / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SOURCE / "model" / name, model / name)
    return config


def make_text(file):
    samples = json.loads((SOURCE / "train.json").read_text())
    file.write_text("\n".join(" ".join(str(v) for v in s.values()) for s in samples))


def make_run(folder):
    """A Llama of 26M parameters without weights, text, and folder/deck.toml that trains it. Returns its vocabulary."""
    model = folder / "model"
    config = make_model(model, hidden_size=WIDE, num_hidden_layers=BLOCKS, intermediate_size=FORWARD,
                        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=2048)
    make_text(folder / "text.txt")
    (folder / "deck.toml").write_text(
        f'[model]\npath = "{model}"\ninit = "random"\n[data]\npath = "{folder}/text.txt"\nformat = "text"\n'
        f'max_seq_length = {SEQUENCE}\n[train]\noutput = "{folder}/out"\n[metrics]\nlog_steps = 1000000\n')
    return config["vocab_size"]


def train(build, folder, ranks, threads, steps, overrides):
    """Trains folder/deck.toml with the program of `build`, two samples a rank and step. Returns the rows of its steps."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    command = ["bash", str(SOURCE.parents[1] / "tests/support/mpirun.sh"), str(ranks), f"{build}/finetune",
               str(folder / "deck.toml"), f"train.max_steps={steps}", "train.micro_batch=2",
               f"train.global_batch={2 * ranks}", "checkpoint.save_steps=0"] + overrides
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": str(threads)}, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    rows = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "loss" in row]


def quickest_quarter(seconds):
    return statistics.mean(sorted(seconds)[:max(1, len(seconds) // 4)])
