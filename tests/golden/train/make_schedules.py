# SPDX-License-Identifier: Apache-2.0
"""Adds to tests/golden/train/schedules.json what transformers' schedules multiply the learning rate by.

    python tests/golden/train/make_schedules.py      (transformers 5.24)

What is there already stays: those of 20 steps with 4 of warm-up.
"""
import json
import pathlib

import torch
from transformers import optimization

path = pathlib.Path(__file__).resolve().parent / "schedules.json"
document = json.loads(path.read_text())
steps, warmup = document["steps"], document["warmup_steps"]


def multipliers(make, **options):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = make(optimizer, **options)
    return [schedule.lr_lambdas[0](step) for step in range(steps)]


of_steps = {"num_warmup_steps": warmup, "num_training_steps": steps}
document["multipliers"].update({
    "hf_cosine_with_restarts_3": multipliers(
        optimization.get_cosine_with_hard_restarts_schedule_with_warmup, **of_steps, num_cycles=3),
    "hf_polynomial_2": multipliers(
        optimization.get_polynomial_decay_schedule_with_warmup, **of_steps, lr_end=0.1, power=2.0),
    "hf_inverse_sqrt": multipliers(optimization.get_inverse_sqrt_schedule, num_warmup_steps=warmup),
    "hf_inverse_sqrt_7": multipliers(
        optimization.get_inverse_sqrt_schedule, num_warmup_steps=warmup, timescale=7),
})
path.write_text(json.dumps(document, indent=1) + "\n")
