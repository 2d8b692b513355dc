#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times an optimizer step of step_bench's Llama beside eager transformers with fused AdamW, in turns.

    python3 tests/bench/compare_step.py [--dtype bf16|fp32] [--threads N] [--rounds N] [--build build]

Needs torch and transformers in this Python. Both train the same 60M-parameter Llama from random weights on the same
tokens: sequence 512, batch 4, clipping to norm 1, AdamW with fp32 moments. For bf16 the peer runs twice: with bfloat16
parameters that the optimizer updates directly (fewer bytes, less exact than bf16-mixed), and with fp32 master copies
(what bf16-mixed does). Prints every round and the ratios of the medians: tokens/s ours / peer, peak memory ours / peer.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

LR, BETAS, DECAY, CLIP, SEQUENCE, BATCH = 1e-4, (0.9, 0.95), 0.1, 1.0, 512, 4


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--build", default="build")
    p.add_argument("--peer", choices=["bf16", "master", "fp32"], help=argparse.SUPPRESS)
    return p.parse_args()


def status_mib(key):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith(key))


def peer(args):
    """One run of the peer in a process of its own; prints a JSON line."""
    import torch
    import transformers
    torch.set_num_threads(args.threads)
    config = transformers.LlamaConfig(vocab_size=32000, hidden_size=512, intermediate_size=1376, num_hidden_layers=8,
                                      num_attention_heads=8, rms_norm_eps=1e-6, max_position_embeddings=2048,
                                      tie_word_embeddings=False, use_cache=False)
    model = transformers.LlamaForCausalLM(config).to(torch.float32 if args.peer == "fp32" else torch.bfloat16)
    model.train()
    params = list(model.parameters())
    copies = [p.detach().float().requires_grad_() for p in params] if args.peer == "master" else params
    optimizer = torch.optim.AdamW([dict(params=[p for p in copies if p.dim() >= 2], weight_decay=DECAY),
                                   dict(params=[p for p in copies if p.dim() < 2], weight_decay=0.0)],
                                  lr=LR, betas=BETAS, fused=True)
    x, seconds = 1, []
    for _ in range(args.steps + 2):
        ids = []
        for _ in range(BATCH * SEQUENCE):
            x = (1103515245 * x + 12345) % 2**31
            ids.append((x >> 16) % 1000)
        ids = torch.tensor(ids).view(BATCH, SEQUENCE)
        start = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        if args.peer == "master":
            for p, c in zip(params, copies):
                c.grad, p.grad = p.grad.float(), None
        torch.nn.utils.clip_grad_norm_(copies, CLIP)
        optimizer.step()
        if args.peer == "master":
            with torch.no_grad():
                for p, c in zip(params, copies):
                    p.copy_(c)
        optimizer.zero_grad()
        loss.item()
        seconds.append(time.perf_counter() - start)
    print(json.dumps(dict(tokens_per_s=BATCH * SEQUENCE / statistics.median(seconds[2:]), peak_mib=status_mib("VmHWM"))))


def run_peer(args, kind):
    out = subprocess.run([sys.executable, __file__, "--peer", kind, "--threads", str(args.threads), "--steps",
                          str(args.steps)], check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1])


def run_ours(args):
    program = os.path.join(args.build, "bench/step_bench")
    name = "step/bf16_mixed" if args.dtype == "bf16" else "step/fp32"
    out = subprocess.run([program, f"--benchmark_filter={name}", "--benchmark_format=json",
                          f"--benchmark_min_time={args.steps * 0.7}"],
                         check=True, capture_output=True, text=True,
                         env=os.environ | {"OMP_NUM_THREADS": str(args.threads)}).stdout
    result = json.loads(out[out.index("{"):])["benchmarks"][0]
    return dict(tokens_per_s=result["tokens_per_s"], peak_mib=result["peak_rss_mib"])


def main():
    args = parse()
    if args.peer:
        return peer(args)
    kinds = ["bf16", "master"] if args.dtype == "bf16" else ["fp32"]
    ours, peers = [], {kind: [] for kind in kinds}
    for i in range(args.rounds):
        ours.append(run_ours(args))
        for kind in kinds:
            peers[kind].append(run_peer(args, kind))
        print(f"round {i + 1}: ours {ours[-1]['tokens_per_s']:.0f} tokens/s {ours[-1]['peak_mib']:.0f} MiB; " + "; ".join(
            f"transformers {k} {v[-1]['tokens_per_s']:.0f} tokens/s {v[-1]['peak_mib']:.0f} MiB" for k, v in peers.items()))
    for kind, results in peers.items():
        speed = [a["tokens_per_s"] / b["tokens_per_s"] for a, b in zip(ours, results)]
        memory = [a["peak_mib"] / b["peak_mib"] for a, b in zip(ours, results)]
        print(f"ours / transformers {kind}: speed {statistics.median(speed):.2f} ({min(speed):.2f} to {max(speed):.2f}), "
              f"peak memory {statistics.median(memory):.2f}")


if __name__ == "__main__":
    main()
