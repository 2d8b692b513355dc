#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times an optimizer step of step_bench's Llama beside eager transformers with fused AdamW, in turns.

    python3 tests/bench/compare_step.py [--dtype bf16|fp32] [--threads N] [--rounds N] [--build build]

Needs torch and transformers in this Python. Both train the same 60M-parameter Llama from random weights on the same
tokens: sequence 512, batch 4, clipping to norm 1, AdamW with fp32 moments. For bf16 the peer runs twice: with bfloat16
parameters that the optimizer updates directly (fewer bytes, less exact than bf16-mixed), and with fp32 master copies
(what bf16-mixed does). Prints every round and the ratios of the rounds: median (least to most).
"""
import argparse

import beside


def peer(args):
    """One run of the peer in a process of its own; prints a JSON line."""
    import torch
    torch.set_num_threads(args.threads)
    model = beside.llama(hidden_size=512, intermediate_size=1376, num_hidden_layers=8, num_attention_heads=8)
    model.to(torch.float32 if args.peer == "fp32" else torch.bfloat16).train()
    params = list(model.parameters())
    copies = [p.detach().float().requires_grad_() for p in params] if args.peer == "master" else params
    optimizer = torch.optim.AdamW([dict(params=[p for p in copies if p.dim() >= 2], weight_decay=beside.DECAY),
                                   dict(params=[p for p in copies if p.dim() < 2], weight_decay=0.0)],
                                  lr=beside.LR, betas=beside.BETAS, fused=True)
    if args.peer != "master":
        return beside.time_steps(args, model, optimizer, copies)

    def hand_over_gradients():
        for p, c in zip(params, copies):
            c.grad, p.grad = p.grad.float(), None

    def hand_back_weights():
        with torch.no_grad():
            for p, c in zip(params, copies):
                p.copy_(c)

    beside.time_steps(args, model, optimizer, copies, hand_over_gradients, hand_back_weights)


def main():
    p = beside.parser(__doc__, steps=10)
    p.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    p.add_argument("--peer", choices=["bf16", "master", "fp32"], help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.peer:
        return peer(args)
    name = "step/bf16_mixed" if args.dtype == "bf16" else "step/fp32"
    kinds = {"ours": lambda: beside.run_ours(args, "step_bench", name, 0.7)}
    for kind in ["bf16", "master"] if args.dtype == "bf16" else ["fp32"]:
        kinds[f"transformers {kind}"] = lambda kind=kind: beside.run_peer(args, __file__, kind)
    beside.compare(args, kinds, [("ours", peer_name) for peer_name in kinds if peer_name != "ours"])


if __name__ == "__main__":
    main()
