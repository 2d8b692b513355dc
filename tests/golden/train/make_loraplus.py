# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/train/loraplus.json and loraplus_final: twenty steps of PEFT's LoRA+ from the adapter
in lora_init, with the settings of lora.json and B's learning rate sixteen times that of A.

    python tests/golden/train/make_loraplus.py      (torch 2.11, transformers 5.24, peft 0.21)

As a control the same loop with one learning rate gives lora.json first.
"""
import json
import math
import pathlib
import sys

import peft
import torch
import torch.nn.functional as F
import transformers
from peft.optimizers import create_loraplus_optimizer
from safetensors.torch import load_file, save_file

train = pathlib.Path(__file__).resolve().parent
RATIO = 16.0


def learning_rate(settings, step):
    warmup, peak, least = settings["warmup_steps"], settings["peak_lr"], settings["min_lr"]
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / (settings["steps"] - warmup)
    return least + 0.5 * (peak - least) * (1 + math.cos(math.pi * done))


def run(settings, ratio):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        train.parent / "models/llama", dtype=torch.float32, attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(model, train / "lora_init", is_trainable=True)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = create_loraplus_optimizer(
        model, torch.optim.AdamW, lr=1.0, loraplus_lr_ratio=ratio, betas=settings["betas"], eps=settings["eps"],
        loraplus_weight_decay=settings["weight_decay"], foreach=False)
    data = load_file(train / "data.safetensors")
    multiples = [group["lr"] for group in optimizer.param_groups]
    model.train()
    log = []
    for step in range(settings["steps"]):
        first = step * settings["accumulation"]
        micro = [(data["input_ids"][i], data["labels"][i, :, 1:]) for i in range(first, first + settings["accumulation"])]
        tokens = sum(int((labels != -100).sum()) for _, labels in micro)
        total = 0
        for ids, labels in micro:
            logits = model(input_ids=ids).logits[:, :-1]
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
            (loss / tokens).backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(trained, settings["clip"]).item()
        for group, multiple in zip(optimizer.param_groups, multiples):
            group["lr"] = multiple * learning_rate(settings, step)
        optimizer.step()
        optimizer.zero_grad()
        log.append({"step": step, "loss": total / tokens, "grad_norm": norm})
    return model, log


torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
settings = json.loads((train / "lora.json").read_text())
expected = settings.pop("log")
_, log = run(settings, 1.0)
if max(abs(a["loss"] - b["loss"]) for a, b in zip(log, expected)) > 1e-6:
    sys.exit("this is not the loop that lora.json was made with")
model, log = run(settings, RATIO)
settings |= {"method": "loraplus", "loraplus_lr_ratio": RATIO, "log": log}
(train / "loraplus.json").write_text(json.dumps(settings, indent=1) + "\n")
folder = train / "loraplus_final"
folder.mkdir(exist_ok=True)
adapter = {key: value.detach().contiguous().clone() for key, value in peft.get_peft_model_state_dict(model).items()}
save_file(adapter, folder / "adapter_model.safetensors", metadata={"format": "pt"})
(folder / "adapter_config.json").write_bytes((train / "lora_final/adapter_config.json").read_bytes())
print(log[0]["loss"], log[-1]["loss"], "with one rate", expected[-1]["loss"])
