#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Numbers for tests/gpu/run.sh, with nothing but Python's own library.

  run_numbers.py same A.jsonl B.jsonl TOLERANCE      metrics of two runs: equal bits for 0, else relative
  run_numbers.py tokens FILE VOCABULARY LENGTH COUNT a file of token ids
  run_numbers.py shape 1b|8b FILE                    a config.json
  run_numbers.py step NAME CONFIG METRICS LOG DEVICE LENGTH MEMORY
                                                     what a run says of its speed and memory, as JSON
  run_numbers.py launches NAME FOUR EIGHT DEVICE     per step, from counts of 4 and of 8 steps, as JSON
  run_numbers.py table FIGURES.jsonl TABLE.md        all figures as a table
Exit code 1 with a line "problem: ..." if runs differ or take more memory than planned."""

import datetime
import json
import re
import statistics
import sys

SHAPES = {
    # The shapes of Llama 3.2 1B and Llama 3.1 8B.
    "1b": dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_key_value_heads=8, head_dim=64,
               tie_word_embeddings=True),
    "8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_key_value_heads=8, head_dim=128,
               tie_word_embeddings=False),
    "tiny": dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_key_value_heads=8, head_dim=8,
                 tie_word_embeddings=True, num_attention_heads=8, vocab_size=512),
}


def problem(text):
    print("problem: " + text, file=sys.stderr)
    sys.exit(1)


def steps_of(path):
    rows = [json.loads(line) for line in open(path, encoding="utf-8")]
    return [row for row in rows if "loss" in row and "step" in row]


def differs(field, a, b, tolerance):
    if tolerance == 0:
        return a != b
    allowed = tolerance if field == "loss" else 3 * tolerance
    return not abs(a - b) <= allowed * abs(a)


def same(first, second, tolerance):
    a, b = steps_of(first), steps_of(second)
    if not a or len(a) != len(b):
        problem(f"{len(a)} and {len(b)} steps")
    for row, other in zip(a, b):
        for field in ("loss", "grad_norm", "lr"):
            if differs(field, row[field], other[field], tolerance):
                problem(f"step {row['step']}: {field} is {row[field]!r} and {other[field]!r}, tolerance {tolerance}")
    apart = max(abs(x["loss"] - y["loss"]) / abs(x["loss"]) for x, y in zip(a, b))
    print(f"{len(a)} steps, losses at most {apart:.2e} apart")


def tokens(path, vocabulary, length, count):
    state = 1
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            ids = []
            for _ in range(length):
                state = (1103515245 * state + 12345) % (1 << 31)
                # A chain with some order, so that there is something to learn.
                ids.append((state >> 16) % vocabulary if len(ids) % 3 == 0 else (ids[-1] * 7 + 3) % vocabulary)
            file.write(json.dumps({"input_ids": ids}) + "\n")


def shape(name, path):
    config = dict(model_type="llama", vocab_size=128256, num_attention_heads=32, max_position_embeddings=131072,
                  rms_norm_eps=1e-5, rope_theta=500000.0, torch_dtype="bfloat16")
    config.update(SHAPES[name])
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)


def flops_per_token(config, length):
    """Of the model, forward and backward; nothing computed twice. Attention is causal: half of its square."""
    d, layers = config["hidden_size"], config["num_hidden_layers"]
    heads, kv, head = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    block = d * head * (heads + 2 * kv) + heads * head * d + 3 * d * config["intermediate_size"]
    return 6 * (layers * block + d * config["vocab_size"]) + 6 * layers * heads * head * length


def mib_after(text, words):
    found = re.findall(words + r" ([0-9.]+) (KiB|MiB|GiB)", text)
    if not found:
        return None
    value, unit = found[-1]
    return float(value) * {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}[unit]


# Dense bf16, TFLOP/s, of NVIDIA's data sheets (SXM).
PEAKS = {"H100": 989.4, "H200": 989.4, "A100": 312.0}


def today():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")


def most_in(path):
    numbers = [int(word) for word in open(path, encoding="utf-8").read().split() if word.isdigit()]
    return max(numbers, default=None)


def step(name, config_path, metrics, log, device, length, memory):
    rows = steps_of(metrics)
    # The first steps connect, allocate and choose kernels.
    late = rows[len(rows) // 2:]
    rate = statistics.median(row["tokens_per_s"] for row in late)
    config = json.load(open(config_path, encoding="utf-8"))
    text = open(log, encoding="utf-8").read()
    tflops = rate * flops_per_token(config, int(length)) / 1e12
    peak = next((PEAKS[part] for part in PEAKS if part in device), None)
    planned, used = mib_after(text, "of which tensors"), mib_after(text, "used by tensors")
    print(json.dumps({
        "figure": "step/" + name, "tokens_per_s": rate, "step_s": statistics.median(row["step_s"] for row in late),
        "steps": len(late), "model_tflops": tflops, "mfu": None if peak is None else tflops / peak,
        "planned_tensors_mib": planned, "used_tensors_mib": used, "planned_mib": mib_after(text, "needed most: planned"),
        "gpu_memory_mib": most_in(memory), "device": device, "date": today()}))
    if planned is None or used is None:
        problem("the log says nothing of memory")
    # What one operation takes for itself is little next to the tensors of a real model.
    if used > 1.1 * planned + 64:
        problem(f"tensors took {used:.1f} MiB, {planned:.1f} MiB were planned")


def counts_of(path):
    counts = {}
    for line in open(path, encoding="utf-8"):
        words = line.split()
        if len(words) == 2:
            counts[words[0]] = int(words[1])
    return counts


def launches(name, four, eight, device):
    before, after = counts_of(four), counts_of(eight)
    print(json.dumps({"figure": "launches/" + name, "launches_per_step": (after["launches"] - before["launches"]) / 4,
                      "syncs_per_step": (after["syncs"] - before["syncs"]) / 4, "device": device, "date": today()}))


def table(path, target):
    with open(target, "w", encoding="utf-8") as file:
        file.write("| figure | values |\n|---|---|\n")
        for line in open(path, encoding="utf-8"):
            row = json.loads(line)
            values = [f"{name} {value:.4g}" if isinstance(value, (int, float)) else f"{name} {value}"
                      for name, value in row.items() if name not in ("figure", "device", "date") and value is not None]
            file.write(f"| {row['figure']} | {', '.join(values)} |\n")


def main(words):
    if words[:1] == ["same"] and len(words) == 4:
        return same(words[1], words[2], float(words[3]))
    if words[:1] == ["tokens"] and len(words) == 5:
        return tokens(words[1], *map(int, words[2:]))
    if words[:1] == ["shape"] and len(words) == 3:
        return shape(*words[1:])
    if words[:1] == ["step"] and len(words) == 8:
        return step(*words[1:])
    if words[:1] == ["launches"] and len(words) == 5:
        return launches(*words[1:])
    if words[:1] == ["table"] and len(words) == 3:
        return table(*words[1:])
    print(__doc__)
    sys.exit(64)


main(sys.argv[1:])
