# SPDX-License-Identifier: Apache-2.0
"""Loads an exported folder with transformers and compares logits.

python3 load_with_transformers.py FOLDER LOGITS: LOGITS holds fp32 logits [40, V] of ids 37 i mod 500.
Exit code 1 if a tensor is missing, unexpected or newly made, or if logits differ by more than 3e-5 from those in fp64.
"""

import sys

import torch
import transformers

folder, file = sys.argv[1:]
# Models that see, too, are no causal language models to AutoModel.
model_class = getattr(transformers, transformers.AutoConfig.from_pretrained(folder).architectures[0])
model, info = model_class.from_pretrained(
    folder, dtype=torch.float64, attn_implementation="eager", output_loading_info=True
)
for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
    if info[kind]:
        sys.exit(f"{kind}: {sorted(info[kind])}")
ids = (torch.arange(40) * 37 % 500).unsqueeze(0)
with torch.no_grad():
    expected = model(input_ids=ids).logits[0]
got = torch.frombuffer(bytearray(open(file, "rb").read()), dtype=torch.float32).view(40, -1)
difference = (got - expected).abs().max().item()
print(f"{folder}: logits differ by at most {difference:.2e}")
if not difference < 3e-5:
    sys.exit(1)
