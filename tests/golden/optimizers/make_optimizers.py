# SPDX-License-Identifier: Apache-2.0
"""Writes schedule_free.json, lion8bit.json, muon.json and adafactor.json next to this file: steps of other libraries'
optimizers on one tensor, whose first values and gradients are the exact fractions below.

    python tests/golden/optimizers/make_optimizers.py [NAME ..]    (torch 2.11, schedulefree 1.4.1, bitsandbytes 0.50.2,
                                                                   transformers 5)
"""
import json
import pathlib
import sys

import torch

here = pathlib.Path(__file__).resolve().parent
COUNT, STEPS = 600, 12


def first():
    return torch.tensor([((i * 53) % 199 - 99) / 64 for i in range(COUNT)])


def gradient(step):
    return torch.tensor([((i * 37 + step * 101) % 257 - 128) / 1024 for i in range(COUNT)])


def train(optimizer, weight):
    for step in range(STEPS):
        weight.grad = gradient(step)
        optimizer.step()


def write(name, settings, values):
    values = {key: [float(f"{x:.9g}") for x in value.tolist()] for key, value in values.items()}
    text = json.dumps({"count": COUNT, "steps": STEPS, **settings, **values})
    (here / name).write_text(text.replace("[", "\n[") + "\n")


def schedule_free():
    import schedulefree
    settings = {"lr": 0.02, "beta1": 0.9, "beta2": 0.98, "eps": 1e-6, "weight_decay": 0.1, "warmup_steps": 4}
    weight = torch.nn.Parameter(first())
    optimizer = schedulefree.AdamWScheduleFree(
        [weight], lr=settings["lr"], betas=(settings["beta1"], settings["beta2"]), eps=settings["eps"],
        weight_decay=settings["weight_decay"], warmup_steps=settings["warmup_steps"], foreach=False)
    optimizer.train()
    train(optimizer, weight)
    y, z = weight.detach().clone(), optimizer.state[weight]["z"].clone()
    optimizer.eval()
    write("schedule_free.json", settings,
          {"y": y, "z": z, "x": weight.detach(), "exp_avg_sq": optimizer.state[weight]["exp_avg_sq"]})


def lion8bit():
    import bitsandbytes
    settings = {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1}
    weight = torch.nn.Parameter(first())
    optimizer = bitsandbytes.optim.Lion8bit(
        [weight], lr=settings["lr"], betas=(settings["beta1"], settings["beta2"]),
        weight_decay=settings["weight_decay"], min_8bit_size=1)
    train(optimizer, weight)
    state = optimizer.state[weight]
    moment = bitsandbytes.functional.dequantize_blockwise(
        state["state1"], absmax=state["absmax1"], code=state["qmap1"], blocksize=256)
    write("lion8bit.json", settings, {"weight": weight.detach(), "exp_avg": moment})


def newton_schulz(matrix, coefficients, steps, eps):
    """torch's, but in fp32."""
    a, b, c = coefficients
    x = matrix.T if matrix.size(0) > matrix.size(1) else matrix
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if matrix.size(0) > matrix.size(1) else x


def muon():
    settings = {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1, "height": 30, "width": 20}
    original = torch.optim._muon._zeropower_via_newtonschulz
    probe = torch.randn((30, 20), generator=torch.Generator().manual_seed(0))
    args = (3.4445, -4.7750, 2.0315), 5, 1e-7
    apart = (original(probe.clone(), *args).float() - newton_schulz(probe, *args)).norm()
    assert apart < 0.03 * newton_schulz(probe, *args).norm(), "fp32 is what bf16 rounds"
    torch.optim._muon._zeropower_via_newtonschulz = newton_schulz
    values = {}
    for name, shape in (("high", (30, 20)), ("wide", (20, 30))):
        weight = torch.nn.Parameter(first().reshape(shape))
        optimizer = torch.optim.Muon(
            [weight], lr=settings["lr"], weight_decay=settings["weight_decay"], momentum=settings["momentum"],
            adjust_lr_fn="match_rms_adamw")
        for step in range(STEPS):
            weight.grad = gradient(step).reshape(shape)
            optimizer.step()
        values[name] = weight.detach().flatten()
    write("muon.json", settings, values)


def adafactor():
    """As the Trainer sets it up for optim="adafactor"."""
    import transformers
    settings = {"lr": 0.02, "weight_decay": 0.1, "clip_threshold": 0.7, "height": 30, "width": 20}
    values = {}
    for name, shape in (("high", (30, 20)), ("wide", (20, 30)), ("vector", (600,))):
        weight = torch.nn.Parameter(first().reshape(shape))
        optimizer = transformers.Adafactor(
            [weight], lr=settings["lr"], weight_decay=settings["weight_decay"],
            clip_threshold=settings["clip_threshold"], scale_parameter=False, relative_step=False)
        for step in range(STEPS):
            weight.grad = gradient(step).reshape(shape)
            optimizer.step()
        values[name] = weight.detach().flatten()
        state = optimizer.state[weight]
        for kept in ("exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq"):
            if kept in state:
                values[f"{name}.{kept}"] = state[kept].flatten()
    write("adafactor.json", settings, values)


wanted = sys.argv[1:] or ["schedule_free", "lion8bit", "muon", "adafactor"]
for each in wanted:
    {"schedule_free": schedule_free, "lion8bit": lion8bit, "muon": muon, "adafactor": adafactor}[each]()
