# SPDX-License-Identifier: Apache-2.0
"""What transformers and PEFT make of folders with new tokens.

python3 check_tokens.py encode FOLDER ORIGINAL TEXTS    the ids and texts of FOLDER's tokenizer are those of
                                                        ORIGINAL's after add_tokens
python3 check_tokens.py load BASE FOLDER ADAPTER LOGITS PEFT's logits of ADAPTER beside BASE, resized, against LOGITS
TEXTS is {"plain": [...], "special": [...], "texts": [...]}. LOGITS as in check_adapter.py.
"""

import json
import sys
import warnings

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast


def tokenizer(folder):
    try:
        return AutoTokenizer.from_pretrained(folder)
    except ValueError:  # a folder whose configuration names no class
        return PreTrainedTokenizerFast.from_pretrained(folder)


def encode(folder, original, file):
    wanted = json.load(open(file))
    ours, theirs = tokenizer(folder), tokenizer(original)
    theirs.add_tokens(wanted["plain"])
    theirs.add_tokens(wanted["special"], special_tokens=True)
    if len(ours) != len(theirs):
        sys.exit(f"{len(ours)} tokens, transformers has {len(theirs)}")
    for text in wanted["texts"]:
        ids, expected = ours(text)["input_ids"], theirs(text)["input_ids"]
        if ids != expected:
            sys.exit(f"{text!r}: {ids}, transformers has {expected}")
        for skip in (False, True):
            if ours.decode(ids, skip_special_tokens=skip) != theirs.decode(ids, skip_special_tokens=skip):
                sys.exit(f"{text!r} is decoded otherwise")
        print(ids)


def load(base, folder, adapter, file):
    from peft import PeftModel

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
    # As users do it; a model that has unused rows keeps them.
    rows = max(model.get_input_embeddings().weight.shape[0], len(tokenizer(adapter)))
    model.resize_token_embeddings(rows, mean_resizing=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PeftModel.from_pretrained(model, adapter).eval()
    problems = [str(w.message) for w in caught if "adapter keys" in str(w.message)]
    if problems:
        sys.exit("\n".join(problems))
    ids = (torch.arange(40) * 37 % 500).unsqueeze(0)
    with torch.no_grad():
        expected = model(ids).logits[0]
    got = torch.frombuffer(bytearray(open(file, "rb").read()), dtype=torch.float32).view(40, -1)
    difference = (got - expected).abs().max().item()
    print(f"logits differ by at most {difference:.2e}")
    if not difference < 3e-5:
        sys.exit(1)


command, *words = sys.argv[1:]
(encode if command == "encode" else load)(*words)
