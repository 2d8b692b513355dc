#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of transformers (and peft) with the shape, length and batch of a run of tests/gpu, without files and network.

  side_by_side.py NAME CONFIG.json LENGTH MICRO_BATCH full|lora [--compile] [--recompute]

Prints a line of JSON like those of run_numbers.py: tokens/s of the median late step, of two micro-batches as ours has,
and the peak of libtorch's allocator. Weights are random and drawn on the device, in bf16."""
import datetime
import json
import statistics
import sys
import time

import torch
import transformers

NUM_STEPS = 6
MICRO_BATCHES = 2


def make_model(config_path, mode, recompute):
    with open(config_path, encoding="utf-8") as file:
        config = json.load(file)
    config.pop("torch_dtype", None)
    model = transformers.LlamaForCausalLM._from_config(transformers.LlamaConfig(**config), attn_implementation="sdpa")
    model.config.use_cache = False
    if recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if mode == "lora":
        import peft

        model = peft.get_peft_model(
            model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
        if recompute:
            model.enable_input_require_grads()
    return model.train(), config["vocab_size"]


def time_steps(model, optimizer, ids, synchronize):
    times = []
    for _ in range(NUM_STEPS):
        synchronize()
        start = time.perf_counter()
        for _ in range(MICRO_BATCHES):
            (model(input_ids=ids, labels=ids).loss / MICRO_BATCHES).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[NUM_STEPS // 2:])


def main(name, config_path, length, micro, mode, *flags):
    on_gpu = torch.cuda.is_available()
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("cuda" if on_gpu else "cpu")
    model, vocabulary = make_model(config_path, mode, "--recompute" in flags)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=on_gpu)
    ids = torch.randint(0, vocabulary, (int(micro), int(length)))
    run = torch.compile(model) if "--compile" in flags else model
    seconds = time_steps(run, optimizer, ids, torch.cuda.synchronize if on_gpu else lambda: None)
    print(json.dumps({
        "figure": name, "tokens_per_s": MICRO_BATCHES * int(micro) * int(length) / seconds, "step_s": seconds,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None,
        "torch": torch.__version__, "transformers": transformers.__version__,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu", "date": datetime.date.today().isoformat()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
