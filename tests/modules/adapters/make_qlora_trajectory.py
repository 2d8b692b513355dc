# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/train/qlora_by_definition*: twenty steps of PEFT's LoRA beside NF4 weights that
are unpacked by NF4's definition.

    python tests/modules/adapters/make_qlora_trajectory.py [--check]
    (torch 2.11, transformers 5.23, peft 0.21, bitsandbytes 0.50)

With --check it compares what it computes with these files and writes nothing.

A weight is level[code] * absmax[position / 64], the position counted through the whole matrix.
bitsandbytes 0.50 packs so, but on a CPU it unpacks matrices whose rows are no multiple of 64 in
another way. train/qlora.json was made with that; down_proj of tests/golden/models/llama has rows of
96. Controls come first, and nothing is written if one fails:
- the same loop beside the dense weights gives train/lora.json;
- beside what bitsandbytes unpacks on a CPU it gives train/qlora.json;
- the definition's values are to the bit those of bitsandbytes on a CPU where rows are multiples of
  64, and for all matrices those of its own code for devices without kernels.
"""
import json
import math
import pathlib
import sys

import bitsandbytes.backends.default.ops as bnb_without_kernels
import bitsandbytes.functional as bnb
import peft
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

golden = pathlib.Path(__file__).resolve().parents[2] / "golden"
train = golden / "train"
NAME = "qlora_by_definition"
LOSS, NORM, ADAPTER = 1e-6, 1e-6, 2e-6  # of losses, of norms relatively, of adapters: rounding


def dense(weight):
    return weight


def packed(weight):
    """The bytes of bitsandbytes, the maxima of its blocks, and everything else it keeps of a matrix."""
    data, state = bnb.quantize_4bit(weight, quant_type="nf4", blocksize=64, compress_statistics=True)
    nested = state.state2
    blocks = torch.arange(state.absmax.numel())
    absmax = nested.code[state.absmax.long()] * nested.absmax[blocks // nested.blocksize] + state.offset
    return data, absmax, state


def unpacked_by_bitsandbytes(weight):
    data, _, state = packed(weight)
    return bnb.dequantize_4bit(data, state)


def unpacked_by_definition(weight):
    data, absmax, state = packed(weight)
    codes = torch.stack([data.flatten() >> 4, data.flatten() & 15], 1).flatten().long()
    return (state.code[codes] * absmax[torch.arange(codes.numel()) // 64]).view(weight.shape)


def check_definition():
    for name, weight in load_file(golden / "models/llama/model.safetensors").items():
        if "proj" not in name:
            continue
        data, absmax, state = packed(weight)
        by_definition = unpacked_by_definition(weight)
        without_kernels = bnb_without_kernels._dequantize_4bit_compute(
            data.flatten(), absmax, state.code, 64, weight.shape, torch.float32)
        if not torch.equal(by_definition, without_kernels):
            sys.exit(f"{name}: the definition's values are not those of bitsandbytes without kernels")
        on_cpu = unpacked_by_bitsandbytes(weight)
        if torch.equal(by_definition, on_cpu) != (weight.shape[1] % 64 == 0):
            sys.exit(f"{name} {list(weight.shape)}: bitsandbytes unpacks it otherwise than it did")
        if weight.shape[1] % 64 != 0:
            print(f"{name} {list(weight.shape)}: root mean square of what NF4 loses {rms(weight - by_definition):.4f}, "
                  f"of what it loses with bitsandbytes on a CPU {rms(weight - on_cpu):.4f}, "
                  f"of the weights {rms(weight):.4f}")


def rms(values):
    return values.square().mean().sqrt().item()


def adapted(unpacked):
    """The reference's model with its projections replaced, and the adapter that the reference begins with."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        golden / "models/llama", dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "proj" in name:
                weight.copy_(unpacked(weight.detach()))
    return peft.PeftModel.from_pretrained(model, train / "lora_init", is_trainable=True)


def learning_rate(settings, step):
    warmup, peak, least = settings["warmup_steps"], settings["peak_lr"], settings["min_lr"]
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / (settings["steps"] - warmup)
    return least + 0.5 * (peak - least) * (1 + math.cos(math.pi * done))


def run(model, settings):
    """Rows as in lora.json. Every trained matrix decays; a step's loss is the mean over its trained tokens."""
    data = load_file(train / "data.safetensors")
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, betas=settings["betas"], eps=settings["eps"],
                                  weight_decay=settings["weight_decay"], foreach=False)
    model.train()
    log = []
    for step in range(settings["steps"]):
        first = step * settings["accumulation"]
        micro = [(data["input_ids"][i], data["labels"][i, :, 1:]) for i in range(first, first + settings["accumulation"])]
        tokens = [int((labels != -100).sum()) for _, labels in micro]
        sums = []
        for ids, labels in micro:
            logits = model(input_ids=ids).logits[:, :-1]
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
            (loss / sum(tokens)).backward()
            sums.append(loss.item())
        norm = torch.nn.utils.clip_grad_norm_(trained, settings["clip"]).item()
        lr = learning_rate(settings, step)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        optimizer.zero_grad()
        log.append({"step": step, "lr": lr, "loss": sum(sums) / sum(tokens), "grad_norm": norm,
                    "micro_loss": [s / t for s, t in zip(sums, tokens)], "micro_tokens": tokens})
    return log


def adapter_of(model):
    return {key: value.detach().contiguous().clone() for key, value in peft.get_peft_model_state_dict(model).items()}


def apart(log, adapter, name):
    """Largest differences from the run NAME of tests/golden/train: losses, norms (relative), adapters."""
    expected = json.loads((train / f"{name}.json").read_text())["log"]
    assert len(log) == len(expected)
    tensors = load_file(train / f"{name}_final/adapter_model.safetensors")
    assert tensors.keys() == adapter.keys()
    return (max(abs(a["loss"] - b["loss"]) for a, b in zip(log, expected)),
            max(abs(a["grad_norm"] / b["grad_norm"] - 1) for a, b in zip(log, expected)),
            max((adapter[key] - tensors[key]).abs().max().item() for key in tensors))


def compare(log, adapter, name, what):
    loss, norm, weight = apart(log, adapter, name)
    print(f"{what} against {name}.json: losses differ by {loss:.1e}, norms by {norm:.1e} of themselves, "
          f"final adapters by {weight:.1e}")
    return loss < LOSS and norm < NORM and weight < ADAPTER


torch.compiler.set_stance("force_eager")  # bitsandbytes compiles functions, for minutes
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
settings = json.loads((train / "qlora.json").read_text())
del settings["log"]

check_definition()

for name, unpacked, what in (("lora", dense, "dense"), ("qlora", unpacked_by_bitsandbytes, "unpacked by bitsandbytes")):
    model = adapted(unpacked)
    if not compare(run(model, settings), adapter_of(model), name, what):
        sys.exit(f"this is not the loop that {name}.json was made with")

model = adapted(unpacked_by_definition)
log, adapter = run(model, settings), adapter_of(model)
compare(log, adapter, "qlora", "unpacked by definition")
if "--check" in sys.argv[1:]:
    sys.exit(0 if compare(log, adapter, NAME, "unpacked by definition") else f"{NAME}.json is another run")
(train / f"{NAME}.json").write_text(json.dumps(settings | {"log": log}, indent=1) + "\n")
folder = train / f"{NAME}_final"
folder.mkdir(exist_ok=True)
save_file(adapter, folder / "adapter_model.safetensors", metadata={"format": "pt"})
# The settings are those of the adapter that all three runs end in.
(folder / "adapter_config.json").write_bytes((train / "qlora_final/adapter_config.json").read_bytes())
