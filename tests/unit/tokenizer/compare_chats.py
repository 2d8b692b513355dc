# SPDX-License-Identifier: Apache-2.0
"""Part of compare.py: conversations of three turns, whose answers begin anew, have the ids of their whole texts."""
import json
import os
import random
import subprocess

import tokenizers

# How templates write turns: before a question, behind it and before the answer, behind the answer. The words are
# those of Llama 2, Zephyr (and TinyLlama's), ChatML, Llama 3, DeepSeek 3 and one that ends turns by line ends alone.
MANNERS = [("<s>[INST] ", " [/INST]", " </s>"), ("<|user|>\n", "</s>\n<|assistant|>\n", "</s>\n"),
           ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>\n"),
           ("<|start_header_id|>user<|end_header_id|>\n\n",
            "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
           ("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"), ("<s>", "</s>", "</s>"),
           ("Q: ", "\nA:", "\n")]


def conversations(rng, library, sentences):
    """Of three turns; parts with whether an answer begins there."""
    def said():
        words = [rng.choice(sentences) for _ in range(rng.randint(1, 2))]
        return rng.choice(["", "", " ", "\n"]) + " ".join(words).strip() + rng.choice(["", "", " "])
    added = {token.content for token in library.get_added_tokens_decoder().values()}
    for before, between, behind in MANNERS:
        # A name that is no token here is a word, which reaches into the answer.
        if between.endswith(">") and between[between.rindex("<"):] not in added:
            continue
        for _ in range(40):
            parts = []
            for _ in range(3):
                # An answer begins where no word of the whole text reaches across.
                answer = ("" if between.endswith((">", "\n")) else " ") + (said().strip() or "so")
                parts += [(before, False), (said(), False), (between, False), (answer, True), (behind, False)]
            yield parts


def chats(comparison, name, folder, library):
    """Tokens of conversations are those of the whole text, though answers begin anew."""
    talks = list(conversations(random.Random(42), library, comparison.sentences))
    lines = "".join(json.dumps([[t, anew, False] for t, anew in parts]) + "\n" for parts in talks)
    done = subprocess.run([comparison.tool, "parts", folder], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    wrong = 0
    for parts, line in zip(talks, done.stdout.decode().splitlines()):
        text = "".join(t for t, _ in parts)
        expected = library.encode(text, add_special_tokens=False).ids
        if json.loads(line) != expected:
            wrong += 1
            if wrong <= 3:
                print(f"{name}: {text!r}: {json.loads(line)} expected {expected}")
    print(f"{name}: {len(talks)} conversations, {wrong} differ")
    comparison.failures += wrong > 0


def schemes(comparison, scratch, folder):
    """Llama 2's file with other rules for the prefix, and a token that takes the white space behind it."""
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
        made = json.load(file)
    made["added_tokens"] += [{"id": 32000 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": rstrip,
                              "normalized": False, "special": special}
                             for i, (text, special, rstrip) in enumerate(
                                 [("<|user|>", True, False), ("<|assistant|>", True, True), ("<|im_end|>", True, True),
                                  ("<｜User｜>", False, False), ("<｜Assistant｜>", False, False),
                                  ("<｜end▁of▁sentence｜>", True, False)])]
    for scheme in ("file", "first", "always", "never"):
        if scheme != "file":
            made["normalizer"] = None
            made["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
        place = os.path.join(scratch, f"scheme-{scheme}")
        os.mkdir(place)
        with open(os.path.join(place, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump(made, file)
        chats(comparison, f"llama2 with prefix {scheme}", place,
              tokenizers.Tokenizer.from_file(os.path.join(place, "tokenizer.json")))
