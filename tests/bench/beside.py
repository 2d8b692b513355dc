# SPDX-License-Identifier: Apache-2.0
"""What compare_step.py and compare_lora.py share: one process a measurement, the same tokens and numbers for all."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

LR, BETAS, DECAY, CLIP, SEQUENCE, BATCH = 1e-4, (0.9, 0.95), 0.1, 1.0, 512, 4


def parser(doc, steps):
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=steps)
    p.add_argument("--build", default="build")
    return p


def llama(**sizes):
    """A Llama of transformers with random weights."""
    import transformers
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=32000, rms_norm_eps=1e-6, max_position_embeddings=2048, tie_word_embeddings=False, use_cache=False,
        **sizes))


def tokens():
    """Batches without end: those that the benchmarks of build/bench make."""
    import torch
    x = 1
    while True:
        ids = []
        for _ in range(BATCH * SEQUENCE):
            x = (1103515245 * x + 12345) % 2**31
            ids.append((x >> 16) % 1000)
        yield torch.tensor(ids).view(BATCH, SEQUENCE)


def time_steps(args, model, optimizer, params, after_backward=lambda: None, after_step=lambda: None):
    """Times optimizer steps of the peer, the first two apart; prints a JSON line for `run_peer`."""
    import torch
    seconds = []
    for _, ids in zip(range(args.steps + 2), tokens()):
        start = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        after_backward()
        torch.nn.utils.clip_grad_norm_(params, CLIP)
        optimizer.step()
        after_step()
        optimizer.zero_grad()
        loss.item()
        seconds.append(time.perf_counter() - start)
    with open("/proc/self/status") as f:
        peak_mib = next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM"))
    print(json.dumps(dict(tokens_per_s=BATCH * SEQUENCE / statistics.median(seconds[2:]), peak_mib=peak_mib)))


def run_peer(args, script, kind):
    out = subprocess.run([sys.executable, script, "--peer", kind, "--threads", str(args.threads), "--steps",
                          str(args.steps)], check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1])


def run_ours(args, program, name, seconds_a_step):
    out = subprocess.run([os.path.join(args.build, "bench", program), f"--benchmark_filter={name}",
                          "--benchmark_format=json", f"--benchmark_min_time={args.steps * seconds_a_step}"],
                         check=True, capture_output=True, text=True,
                         env=os.environ | {"OMP_NUM_THREADS": str(args.threads)}).stdout
    result = json.loads(out[out.index("{"):])["benchmarks"][0]
    return dict(tokens_per_s=result["tokens_per_s"], peak_mib=result["peak_rss_mib"])


def compare(args, kinds, pairs):
    """Runs `kinds` (name to function) in turns, prints each round, then the ratios of `pairs`: median (least to most)."""
    rounds = []
    for i in range(args.rounds):
        rounds.append({name: run() for name, run in kinds.items()})
        print(f"round {i + 1}: " + "; ".join(f"{k} {v['tokens_per_s']:.0f} tokens/s {v['peak_mib']:.0f} MiB"
                                             for k, v in rounds[-1].items()), flush=True)
    for a, b in pairs:
        for what, key in (("speed", "tokens_per_s"), ("peak memory", "peak_mib")):
            ratios = [r[a][key] / r[b][key] for r in rounds]
            print(f"{a} / {b}: {what} {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
