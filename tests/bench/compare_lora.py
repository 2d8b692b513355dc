#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a LoRA step of adapter_bench's Llama beside eager transformers + peft, and beside our full and QLoRA steps.

    python3 tests/bench/compare_lora.py [--threads N] [--rounds N] [--build build]

Needs torch, transformers and peft in this Python. All train the same 162M-parameter Llama in bfloat16 from random weights
on the same tokens: sequence 512, batch 4, LoRA of rank 8, alpha 16 beside all matrices of the blocks, clipping to norm 1,
AdamW. Ours keeps adapters in fp32 and computes in bf16; the peer has bf16 adapters (its fastest way), attention by sdpa.
One process a measurement, all in turns. Prints every round, and the ratios of the rounds: median (least to most).
"""
import argparse

import beside


def peer(args):
    """One run of the peer in a process of its own; prints a JSON line."""
    import peft
    import torch
    torch.set_num_threads(args.threads)
    model = beside.llama(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)
    model = peft.get_peft_model(model.to(torch.bfloat16), peft.LoraConfig(
        r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"), autocast_adapter_dtype=False)
    model.train()
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=beside.LR, betas=beside.BETAS, weight_decay=beside.DECAY, fused=True)
    beside.time_steps(args, model, optimizer, params)


def main():
    p = beside.parser(__doc__, steps=6)
    p.add_argument("--peer", choices=["lora"], help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.peer:
        return peer(args)
    kinds = {kind: lambda kind=kind: beside.run_ours(args, "adapter_bench", f"step/{kind}/layers:12", 4)
             for kind in ("lora", "full", "qlora")}
    kinds["transformers + peft"] = lambda: beside.run_peer(args, __file__, "lora")
    beside.compare(args, kinds, [("lora", "transformers + peft"), ("lora", "full"), ("qlora", "lora"),
                                 ("qlora", "transformers + peft")])


if __name__ == "__main__":
    main()
