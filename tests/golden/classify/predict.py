# SPDX-License-Identifier: Apache-2.0
"""python3 predict.py MODEL TEXTS.jsonl: logits of transformers' ...ForSequenceClassification of each {"text"}, as a JSON list."""
import json
import sys

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
with torch.no_grad():
    print(json.dumps([model(torch.tensor([tokenizer(json.loads(line)["text"])["input_ids"]])).logits[0].tolist()
                      for line in open(sys.argv[2])]))
