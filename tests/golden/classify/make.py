# SPDX-License-Identifier: Apache-2.0
"""Losses of transformers' ...ForSequenceClassification, step by step, on whole batches.

python3 make.py MODEL DATA.jsonl ADAPTER STEPS LR: a folder that `finetune export` wrote, texts with labels as
`data.format = "labelled"` has them, or pairs as "preference", "full" or "lora"; prints the losses as JSON. What it printed for the runs of
tests/restart/classify_test.cpp is in losses.json.
"""
import json
import sys

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

folder, data, method, steps, lr = sys.argv[1:4] + [int(sys.argv[4]), float(sys.argv[5])]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
kind, names = model.config.problem_type, model.config.label2id
if model.config.pad_token_id is None:
    sys.exit("config.json names no pad_token_id")
if method == "lora":
    from peft import PeftModel

    model = PeftModel.from_pretrained(model, folder + "/../adapter", is_trainable=True)


def number(label):
    return names[label] if isinstance(label, str) else label


rows = [json.loads(line) for line in open(data)]
is_reward = "chosen" in rows[0]
if is_reward:
    labels = None
elif kind == "single_label_classification":
    labels = torch.tensor([number(row["label"]) for row in rows])
elif kind == "regression":
    labels = torch.tensor([float(row["label"]) for row in rows])
else:
    labels = torch.zeros(len(rows), len(names))
    for i, row in enumerate(rows):
        for label in row["label"]:
            labels[i, number(label)] = 1
texts = [row[k] for k in ("chosen", "rejected") for row in rows] if is_reward else [row["text"] for row in rows]
ids = [tokenizer(text)["input_ids"] for text in texts]
longest = max(map(len, ids))
pad = model.config.pad_token_id
mask = torch.tensor([[1] * len(one) + [0] * (longest - len(one)) for one in ids])
ids = torch.tensor([one + [pad] * (longest - len(one)) for one in ids])
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, betas=(0.9, 0.95), eps=1e-8,
                              weight_decay=0)
losses = []
for _ in range(steps):
    out = model(input_ids=ids, attention_mask=mask, labels=labels)
    loss = out.loss
    if is_reward:
        preferred, other = out.logits.squeeze(1).chunk(2)
        loss = -torch.nn.functional.logsigmoid(preferred - other).mean()
    losses.append(loss.item())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print(json.dumps(losses))
