#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""finetune generate beside transformers' generate on the CPU: the same model, prompts, tokens and threads, in turns.

    python3 tests/bench/generate.py --python hf/bin/python [--build build] [--rounds 3] [--tokens 64] [--threads 2]

A Llama of 160M parameters with random weights and the quickstart's tokenizer. 1 and 16 prompts of about 40 tokens, greedy,
fp32 and bf16. Seconds are those of generating alone, without loading. Prints tokens/s of both (medians) and their ratio,
and how many of the answers are equal in fp32. --python: one with torch and transformers.
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = """
import json, sys, time, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, prompts, dtype, tokens, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
tokenizer.pad_token = tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
texts = [json.loads(line)["prompt"] for line in open(prompts)]
batch = tokenizer(texts, return_tensors="pt", padding=True)
how = dict(do_sample=False, pad_token_id=tokenizer.pad_token_id)
with torch.no_grad():
    model.generate(**batch, max_new_tokens=4, **how)
    begin = time.perf_counter()
    out = model.generate(**batch, max_new_tokens=int(tokens), min_new_tokens=int(tokens), **how)
    seconds = time.perf_counter() - begin
answers = [tokenizer.decode(row[batch["input_ids"].shape[1]:], skip_special_tokens=True) for row in out]
print(json.dumps(dict(seconds=seconds, answers=answers)))
"""
MODEL = """
import sys, torch, transformers
config = transformers.LlamaConfig(vocab_size=32000, hidden_size=768, intermediate_size=3072, num_hidden_layers=12,
    num_attention_heads=12, max_position_embeddings=2048, rms_norm_eps=1e-6, bos_token_id=1278, eos_token_id=1279)
torch.manual_seed(0)
model = transformers.LlamaForCausalLM(config)
with torch.no_grad():
    model.lm_head.weight[1278:] = 0  # what the tokenizer has no text for, and its own ends, are never chosen
model.to(torch.bfloat16).save_pretrained(sys.argv[1])
"""


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--python", required=True)
    p.add_argument("--build", default=str(ROOT / "build"))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--threads", type=int, default=2)
    return p.parse_args()


def ours(args, model, prompts, out, dtype):
    out.unlink(missing_ok=True)
    done = subprocess.run(
        [f"{args.build}/finetune", "generate", model, "--file", prompts, "-o", out, "--max-tokens", str(args.tokens),
         "--dtype", dtype], env=os.environ | {"OMP_NUM_THREADS": str(args.threads)}, capture_output=True, text=True, check=True)
    tokens, seconds = re.search(r"(\d+) tokens in ([\d.]+) s", done.stdout + done.stderr).groups()
    return int(tokens) / float(seconds), [json.loads(line)["text"] for line in out.read_text().splitlines()]


def theirs(args, model, prompts, dtype, count):
    done = subprocess.run(
        [args.python, "-c", PEER, model, prompts, {"fp32": "float32", "bf16": "bfloat16"}[dtype], str(args.tokens),
         str(args.threads)], env=os.environ | {"OMP_NUM_THREADS": str(args.threads)}, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    return count * args.tokens / result["seconds"], result["answers"]


def main():
    args = parse()
    questions = json.loads((ROOT / "inputs/quickstart/train.json").read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = folder / "model"
        subprocess.run([args.python, "-c", MODEL, model], check=True, capture_output=True)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(ROOT / "inputs/quickstart/model" / file, model)
        print(f"{'prompts':>7} {'dtype':5} {'finetune':>9} {'peer':>9} {'ratio':>6} {'equal':>6}", flush=True)
        for count in (1, 16):
            prompts = folder / f"{count}.jsonl"
            prompts.write_text("".join(
                json.dumps({"prompt": q["instruction"] + " " + q["input"]}) + "\n" for q in questions[:count]))
            for dtype in ("fp32", "bf16"):
                rates = {"ours": [], "theirs": []}
                for _ in range(args.rounds):
                    rate, own = ours(args, model, prompts, folder / "out.jsonl", dtype)
                    rates["ours"].append(rate)
                    rate, other = theirs(args, model, prompts, dtype, count)
                    rates["theirs"].append(rate)
                equal = sum(a.strip() == b.strip() for a, b in zip(own, other))
                a, b = statistics.median(rates["ours"]), statistics.median(rates["theirs"])
                print(f"{count:7} {dtype:5} {a:9.1f} {b:9.1f} {a / b:6.2f} {equal:3}/{count}", flush=True)


if __name__ == "__main__":
    main()
