#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Probabilities that transformers samples the next token with, for some settings.

    python make_sampling.py    # pip: transformers, torch; writes sampling.json beside this file

logits [32] and text (tokens so far); of each case its settings and probabilities [32], 0 where a token is never chosen.
"""
import json
import pathlib

import torch
from transformers.generation import logits_process as lp

CASES = [
    dict(temperature=1.0),
    dict(temperature=0.7),
    dict(temperature=1.0, top_k=5),
    dict(temperature=1.5, top_p=0.8),
    dict(temperature=1.0, min_p=0.2),
    dict(temperature=0.8, top_k=12, top_p=0.9, min_p=0.05),
    dict(temperature=1.0, repetition_penalty=1.3),
    dict(temperature=0.9, repetition_penalty=1.2, top_k=10, top_p=0.7),
]


def main():
    g = torch.Generator().manual_seed(20261126)
    logits = (2 * torch.randn(32, generator=g)).float()
    logits[7] = logits[3]  # a tie
    text = [3, 9, 9, 20, 31]
    out = dict(logits=logits.tolist(), text=text, cases=[])
    for case in CASES:
        scores = logits.clone().unsqueeze(0)
        ids = torch.tensor([text])
        steps = []
        if "repetition_penalty" in case:
            steps.append(lp.RepetitionPenaltyLogitsProcessor(case["repetition_penalty"]))
        steps.append(lp.TemperatureLogitsWarper(case["temperature"]))
        if "top_k" in case:
            steps.append(lp.TopKLogitsWarper(case["top_k"]))
        if "top_p" in case:
            steps.append(lp.TopPLogitsWarper(case["top_p"]))
        if "min_p" in case:
            steps.append(lp.MinPLogitsWarper(case["min_p"]))
        for step in steps:
            scores = step(ids, scores)
        out["cases"].append(dict(settings=case, probabilities=scores.softmax(-1)[0].tolist()))
    (pathlib.Path(__file__).parent / "sampling.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
