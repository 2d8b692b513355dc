#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times tensor-parallel steps of the whole program beside torch's own: DTensor's parallelize_module, in turns.

    python3 tests/bench/compare_tp.py [--ranks 2] [--rounds 3] [--steps 6] [--build build]

Needs torch and transformers in this Python, and mpirun. Both train the same 60M-parameter Llama in fp32 from the same
weights on the same tokens: 4 x 512 a step, clipping to norm 1, AdamW, one thread a rank. The peer has column- and
row-parallel projections, a vocabulary-parallel embedding and head, loss_parallel, and gloo. Prints every round, the
largest difference of the losses, and the ratio of the step times: median (least to most).
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import beside

ROOT = pathlib.Path(__file__).resolve().parents[2]


def ids_of(steps):
    """Rows of ids of all steps, those of beside.tokens."""
    return [row for _, batch in zip(range(steps), beside.tokens()) for row in batch.tolist()]


def shared_model(folder, ranks):
    import torch
    import torch.distributed as dist
    import transformers
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,))
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, use_cache=False)
    column, row = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"], [
        "self_attn.o_proj", "mlp.down_proj"]
    for layer in model.model.layers:
        parallelize_module(layer, mesh, {n: ColwiseParallel() for n in column} | {n: RowwiseParallel() for n in row})
    parallelize_module(model, mesh, {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
                                     "lm_head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
    return model.train()


def clip(params):
    """To a global norm of CLIP: parts of all ranks and what each holds whole, once."""
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor
    parts, whole = [], []
    for p in params:
        (parts if isinstance(p.grad, DTensor) else whole).append(
            p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad)
    square = sum(g.square().sum() for g in parts)
    dist.all_reduce(square)
    norm = (square + sum(g.square().sum() for g in whole)).sqrt()
    factor = torch.clamp(beside.CLIP / (norm + 1e-6), max=1.0)
    for g in parts + whole:
        g.mul_(factor)


def peer(args):
    """One rank of the peer; the first prints a JSON line."""
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor.parallel import loss_parallel
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{args.folder}/store", rank=args.peer, world_size=args.ranks)
    model = shared_model(f"{args.folder}/model", args.ranks)
    params = list(model.parameters())
    optimizer = torch.optim.AdamW([dict(params=[p for p in params if p.dim() >= 2], weight_decay=beside.DECAY),
                                   dict(params=[p for p in params if p.dim() < 2], weight_decay=0.0)],
                                  lr=beside.LR, betas=beside.BETAS)
    rows, seconds, losses = torch.tensor(ids_of(args.steps + 2)), [], []
    for ids in rows.split(beside.BATCH):
        start = time.perf_counter()
        with loss_parallel():
            logits = model(input_ids=ids).logits[:, :-1]
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
        clip(params)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.full_tensor().item() if hasattr(loss, "full_tensor") else loss.item())
        seconds.append(time.perf_counter() - start)
    if args.peer == 0:
        print(json.dumps(dict(step_s=statistics.median(seconds[2:]), loss=losses)))
    dist.destroy_process_group()


def run_peer(args, folder):
    (folder / "store").unlink(missing_ok=True)
    words = [sys.executable, __file__, "--ranks", str(args.ranks), "--steps", str(args.steps), "--folder", str(folder)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    ranks = [subprocess.Popen(words + ["--peer", str(r)], env=env, stdout=subprocess.PIPE, text=True)
             for r in range(args.ranks)]
    texts = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit("a rank of the peer failed")
    return json.loads(texts[0].splitlines()[-1])


def run_ours(args, folder):
    shutil.rmtree(folder / "out", ignore_errors=True)
    command = ["bash", str(ROOT / "tests/support/mpirun.sh"), str(args.ranks), f"{args.build}/finetune",
               str(folder / "deck.toml"), f"parallel.tp={args.ranks}", f"train.max_steps={args.steps + 2}"]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    rows = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "loss" in row]
    return dict(step_s=statistics.median([row["step_s"] for row in rows][2:]), loss=[row["loss"] for row in rows])


def make_run(folder, steps):
    model = beside.llama(hidden_size=512, intermediate_size=1376, num_hidden_layers=8, num_attention_heads=8)
    model.save_pretrained(folder / "model")
    with open(folder / "data.jsonl", "w") as f:
        for row in ids_of(steps):
            f.write(json.dumps({"input_ids": row}) + "\n")
    (folder / "deck.toml").write_text(
        f'[model]\npath = "{folder}/model"\n[data]\npath = "{folder}/data.jsonl"\nformat = "tokens"\nshuffle = false\n'
        f'max_seq_length = {beside.SEQUENCE}\n[precision]\nmode = "32-true"\n[optimizer]\nlr = {beside.LR}\n'
        f'beta1 = {beside.BETAS[0]}\nbeta2 = {beside.BETAS[1]}\nweight_decay = {beside.DECAY}\nschedule = "constant"\n'
        f'warmup_steps = 0\nmax_grad_norm = {beside.CLIP}\n[train]\noutput = "{folder}/out"\n'
        f'global_batch = {beside.BATCH}\nmicro_batch = {beside.BATCH}\n[checkpoint]\nsave_steps = 0\n')


def main():
    p = beside.parser(__doc__, steps=6)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--peer", type=int, help=argparse.SUPPRESS)
    p.add_argument("--folder", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.peer is not None:
        return peer(args)
    ratios, difference = [], 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_run(folder, args.steps + 2)
        for i in range(args.rounds):
            ours, theirs = run_ours(args, folder), run_peer(args, folder)
            ratios.append(theirs["step_s"] / ours["step_s"])
            difference = max([difference] + [abs(a - b) for a, b in zip(ours["loss"], theirs["loss"])])
            print(f"round {i + 1}: ours {ours['step_s']:.3f} s a step; DTensor {theirs['step_s']:.3f} s", flush=True)
    print(f"losses differ by {difference:.1e} at most; DTensor / ours: time {statistics.median(ratios):.2f} "
          f"({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
