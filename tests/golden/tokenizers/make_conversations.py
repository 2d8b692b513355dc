#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ids of conversations whose texts lie around special tokens, by the library tokenizers, of which transformers makes
its own: with Llama 2's prefix, Metaspace's three schemes and byte levels, with tokens that take white space and names
that are not ASCII. Each is the whole text; parts say where an answer begins.

Usage: make_conversations.py (writes conversations.json beside itself). Needs pip install tokenizers.
"""
import json
import os

import tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
ADDED = [("<|user|>", True, False), ("<|assistant|>", True, True), ("<|end|>", True, True), ("<｜User｜>", False, False),
         ("<｜Assistant｜>", False, False), ("<｜end▁of▁sentence｜>", True, False)]
SCHEMES = {"file": {}}
for scheme in ("first", "always", "never"):
    SCHEMES[scheme] = {"normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁",
                                                            "prepend_scheme": scheme, "split": False}}
# Parts of a text; an answer begins with each that starts with "=".
TALKS = [
    ["<s>[INST] The fox [/INST]", "= jumps over. ", "</s>", "<s>[INST] And [/INST]", "= again ", "</s>"],
    ["<|user|>\nThe fox", "</s>\n<|assistant|>\n", "=jumps over", "</s>\n", "<|user|>\nAnd", "</s>\n<|assistant|>\n",
     "=again", "</s>\n"],
    ["<|user|>The fox<|end|>\n<|assistant|>", "=jumps", "<|end|>", "\n<|user|> And<|end|>\n<|assistant|>", "=  again",
     "<|end|>"],
    ["<｜User｜>The fox<｜Assistant｜>", "=jumps", "<｜end▁of▁sentence｜>", "<｜User｜> And<｜Assistant｜>", "= again ",
     "<｜end▁of▁sentence｜>"],
    ["</s>", "=jumps", "</s></s> ", "</s>", "=", "again", "</s>"],
]


def main():
    cases = []
    for name, schemes in (("mistral", SCHEMES), ("llama3", {"file": {}}), ("qwen2", {"file": {}})):
        with open(os.path.join(HERE, name, "tokenizer.json"), encoding="utf-8") as file:
            published = json.load(file)
        for patch in schemes.values():
            first = tokenizers.Tokenizer.from_file(os.path.join(HERE, name, "tokenizer.json")).get_vocab_size()
            added = published["added_tokens"] + [
                {"id": first + i, "content": text, "single_word": False, "lstrip": False, "rstrip": rstrip,
                 "normalized": False, "special": special} for i, (text, special, rstrip) in enumerate(ADDED)]
            change = {**patch, "added_tokens": added}
            library = tokenizers.Tokenizer.from_str(json.dumps({**published, **change}))
            known = {token.content for token in library.get_added_tokens_decoder().values()}
            for parts in TALKS:
                # A name that is no token is a word, which reaches into what follows it.
                if "</s>" not in known and any("s>" in part for part in parts):
                    continue
                text = "".join(part.removeprefix("=") for part in parts)
                cases.append({"tokenizer": name, "change": change, "parts": parts,
                              "ids": library.encode(text, add_special_tokens=False).ids})
    with open(os.path.join(HERE, "conversations.json"), "w", encoding="utf-8") as file:
        json.dump({"made by": f"make_conversations.py, tokenizers {tokenizers.__version__}", "cases": cases}, file,
                  ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


main()
