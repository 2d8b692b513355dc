#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes rules.json: what the Hugging Face tokenizers library makes of many small tokenizer.json.

Every case changes parts of one of the three tokenizers beside this script. Needs `pip install
tokenizers`; rules.json names the version. Usage: make_rules.py > rules.json
"""
import copy
import json
import os
import random
import sys
import tempfile

import tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
BASES = {name: json.load(open(f"{HERE}/{name}/tokenizer.json", encoding="utf-8"))
         for name in ("llama3", "qwen2", "mistral")}
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
REGEXES = [r"\s+", r"\w+|[^\w\s]+", r"\d", r"(?=[A-Z])", r"[\p{P}\p{S}]+", r"^.", r".$", r"\b",
           r"[\s\w]+", r"\W", r"\S", r"[^\S\n]+", r"(?<=a)b?", r"x*", r"\p{Han}|[\u3040-\u30ff]",
           r"\p{Lu}?[\p{Ll}\p{M}]+", r"(?m:a.b)", GPT2, QWEN2, f"(?:{QWEN2})"]
STRINGS = ["a", "e", " ", "the", "ll", "\n", "é", "▁", "."]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
FRAGMENTS = ["Führer straße", "нещо на", "日本語の", "한국어", "مُحَمَّد", "e\u0301 \u212b ﬁ ½ ⅷ",
             "Ǆ İ ı ſ Σς", "\u00a0\u2003\u3000\u0085\u180e\u200b", "'s 'S 'ſ", "\r\n\r\n  \t\n",
             "<A>", "<A><B>", "<AB>", "tok", "Tok ", "  <B>  ", "x<A>y", " [w] ", "a[w]b",
             "▁▁x▁", "<s>", "12³", "the  llama", "a\nb ab", " ", "1,000.5!"]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def yes(self, chance=0.5):
        return self.random.random() < chance

    def pattern(self):
        if self.yes(0.6):
            return {"Regex": self.random.choice(REGEXES)}
        return {"String": self.random.choice(STRINGS)}

    def normalizer_step(self):
        kind = self.random.choice(["NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace", "Lowercase",
                                   "Strip"])
        step = {"type": kind}
        if kind == "Prepend":
            step["prepend"] = self.random.choice(["▁", " ", "ab"])
        if kind == "Replace":
            step["pattern"] = self.pattern()
            step["content"] = self.random.choice(["▁", "", "x", " "])
        if kind == "Strip":
            step.update(strip_left=self.yes(), strip_right=self.yes())
        return step

    def normalizer(self):
        if self.yes(0.3):
            return None
        if self.yes(0.4):
            return self.normalizer_step()
        steps = [self.normalizer_step() for _ in range(self.random.randrange(1, 4))]
        return {"type": "Sequence", "normalizers": steps}

    def pre_tokenizer_step(self, metaspace):
        kind = self.random.choice(["Split"] * 4 + ["Digits", "Punctuation", "Whitespace",
                                                   "WhitespaceSplit"] + ["Metaspace"] * metaspace)
        step = {"type": kind}
        if kind == "Split":
            step.update(pattern=self.pattern(), behavior=self.random.choice(BEHAVIORS),
                        invert=self.yes(0.3))
        if kind == "Digits":
            step["individual_digits"] = self.yes()
        if kind == "Punctuation":
            step["behavior"] = self.random.choice(BEHAVIORS)
        if kind == "Metaspace":
            step.update(replacement="▁", split=self.yes(),
                        prepend_scheme=self.random.choice(["first", "always", "never"]))
        return step

    def pre_tokenizer(self, byte_level):
        steps = [self.pre_tokenizer_step(0 if byte_level else 3)
                 for _ in range(self.random.randrange(0, 3))]
        if byte_level:
            steps.append({"type": "ByteLevel", "add_prefix_space": self.yes(0.4),
                          "trim_offsets": True, "use_regex": self.yes(0.4)})
        return {"type": "Sequence", "pretokenizers": steps}

    def added_tokens(self, base):
        taken = list(base["model"]["vocab"].values()) + [t["id"] for t in base["added_tokens"]]
        next_id = max(taken) + 1
        tokens = []
        contents = ["<A>", "<B>", "<AB>", "tok", "[w]", " sp"]
        for content in self.random.sample(contents, self.random.randrange(0, 5)):
            token = dict(id=next_id + len(tokens), content=content, single_word=self.yes(0.3),
                         lstrip=self.yes(0.3), rstrip=self.yes(0.3), normalized=self.yes(0.4),
                         special=self.yes())
            # Decoding a special token with a normal form of its own differs between versions.
            token["special"] = token["special"] and not token["normalized"]
            tokens.append(token)
        return tokens

    def text(self):
        return "".join(self.random.choice(FRAGMENTS) for _ in range(self.random.randrange(0, 9)))

    def case(self):
        name = self.random.choice(list(BASES))
        byte_level = name != "mistral"
        change = {"base": name, "normalizer": self.normalizer(),
                  "pre_tokenizer": self.pre_tokenizer(byte_level),
                  "added_tokens": self.added_tokens(BASES[name]),
                  "model": {"ignore_merges": self.yes(0.4)}, "plain": self.yes(0.3)}
        if not byte_level:
            change["model"].update(fuse_unk=self.yes(), byte_fallback=self.yes(0.7))
            if self.yes(0.4):
                change["decoder"] = {"type": "Metaspace", "replacement": "▁", "split": True,
                                     "prepend_scheme": self.random.choice(["first", "never"])}
        return change


def apply(change):
    whole = copy.deepcopy(BASES[change["base"]])
    whole["normalizer"] = change["normalizer"]
    whole["pre_tokenizer"] = change["pre_tokenizer"]
    whole["added_tokens"] += change["added_tokens"]
    whole["model"].update(change["model"])
    whole["decoder"] = change.get("decoder", whole["decoder"])
    return whole


def usable(change):
    """Leaves out what the library itself does not define, and one thing that is done otherwise."""
    # "first" looks at the offset in the original text; after a normalizer that removed the first
    # characters the library adds no prefix. Here a text is first if nothing stands before it.
    if change["normalizer"] and '"first"' in json.dumps(change["pre_tokenizer"]):
        return False
    # Two added tokens that normalise to one pattern have no defined id, nor has an empty one.
    kinds = json.dumps(change["normalizer"])
    return not ("Replace" in kinds or "Strip" in kinds) or not any(
        token["normalized"] for token in change["added_tokens"])


def main():
    maker = Maker(20260101)
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        while len(cases) < 80:
            change = maker.case()
            if not usable(change):
                continue
            path = os.path.join(folder, "tokenizer.json")
            json.dump(apply(change), open(path, "w", encoding="utf-8"))
            tokenizer = tokenizers.Tokenizer.from_file(path)
            tokenizer.encode_special_tokens = change["plain"]
            change["texts"] = []
            for _ in range(5):
                text = maker.text()
                try:
                    ids = tokenizer.encode(text).ids
                except BaseException:  # the library panics on some stripped texts
                    continue
                decoded = tokenizer.decode(ids, skip_special_tokens=False)
                change["texts"].append([text, ids, decoded])
            cases.append(change)
    head = {"made_with": f"tokenizers {tokenizers.__version__}", "cases": []}
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    sys.stdout.write(json.dumps(head)[:-2] + "\n" + lines + "\n]}\n")


if __name__ == "__main__":
    main()
