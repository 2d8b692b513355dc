#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the small tokenizers of other kinds than byte-pair tokenizer.json, with the ids that the libraries
they belong to give: unigram (tokenizers), spm-bpe and spm-unigram (sentencepiece), tiktoken and tekken (tiktoken).

Usage: make_models.py (writes beside itself). Needs pip install tokenizers sentencepiece tiktoken;
cases.json names the versions that made it.
"""
import base64
import json
import os
import random
import shutil
import tempfile

import sentencepiece
import tiktoken
import tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
LINES = ["The quick brown fox jumps over the lazy dog, 1234 times in 5 days.",
         "Der Fuchs trägt übermäßig schöne Äpfel über die Straße.",
         "Быстрая лисица прыгает через ленивую собаку.", "春の花が東京で咲いている。", "春天的花开了。",
         "def jump(fox, over=None):\n    return fox.jump(over)  # done", "They'll say we've seen it, don't they?"]
TEXTS = LINES + [
    "", " ", "   ", "\n", "a", " a", "a ", "  two  spaces  here ", "tab\tand\r\nline", "▁mark▁▁", "𝔘𝔫𝔦 👍🏽 ŀ",
    "ﬁne ½ Ａｂｃ\u00a0e\u0301", "unknown 한국어 text", "don't stop春天", "<s> <unk> </s>", "[X]<0x41>", "''' \"\" ..",
    "lazylazylazy dogdog", "\u0000\u0001 \u200b", "x" * 100, "a b c d e f"]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?"
          r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")

LLAMA4 = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
          r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def write(folder, cases, library, name="cases.json"):
    path = os.path.join(HERE, folder, name)
    with open(path, "w", encoding="utf-8") as file:
        json.dump([{"text": t, "ids": ids, "decoded": decoded, "by": library} for t, ids, decoded in cases], file,
                  ensure_ascii=False, indent=0)


def folder_for(name):
    path = os.path.join(HERE, name)
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path)
    return path


def unigram():
    made = tokenizers.Tokenizer(tokenizers.models.Unigram())
    made.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Nmt(), tokenizers.normalizers.NFKC(),
         tokenizers.normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    made.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(vocab_size=200, special_tokens=["<pad>", "</s>", "<unk>"],
                                                 unk_token="<unk>", show_progress=False)
    made.train_from_iterator(LINES * 5, trainer)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", made.token_to_id("</s>"))])
    folder = folder_for("unigram")
    made.save(os.path.join(folder, "tokenizer.json"))
    cases = [(t, made.encode(t).ids) for t in TEXTS]
    write("unigram", [(t, ids, made.decode(ids)) for t, ids in cases], f"tokenizers {tokenizers.__version__}")


def spm(name, model_type, byte_fallback, extra):
    folder = folder_for(name)
    with tempfile.TemporaryDirectory() as scratch:
        text = os.path.join(scratch, "text")
        rules = os.path.join(scratch, "rules.tsv")
        with open(text, "w", encoding="utf-8") as file:
            file.write("\n".join(line.replace("\n", " ") for line in LINES * 5))
        with open(rules, "w", encoding="utf-8") as file:
            for source, target in [("\t", " "), ("\u00a0", " "), ("ﬁ", "fi"), ("½", "1/2"), ("e\u0301", "é"),
                                   ("\u200b", ""), ("Ａ", "A"), ("Ａｂ", "A-b")]:
                file.write(" ".join(f"{ord(c):X}" for c in source) + "\t"
                           + " ".join(f"{ord(c):X}" for c in target) + "\n")
        sentencepiece.SentencePieceTrainer.train(
            input=text, model_prefix=os.path.join(folder, "tokenizer"), model_type=model_type,
            vocab_size=420 if byte_fallback else 110, byte_fallback=byte_fallback, normalization_rule_tsv=rules,
            remove_extra_whitespaces=extra, user_defined_symbols=["▁▁▁", "don't", "春天"], control_symbols=["[X]"],
            num_threads=1, minloglevel=2)
    os.remove(os.path.join(folder, "tokenizer.vocab"))
    library = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
    texts = [t for t in TEXTS if "<s>" not in t and "[X]" not in t]  # names in text: tokens to this program
    cases = [(t, [library.bos_id()] + library.encode(t)) for t in texts]
    write(name, [(t, ids, library.decode(ids) if byte_fallback else None) for t, ids in cases],
          f"sentencepiece {sentencepiece.__version__}")


def ranks():
    """256 bytes, and what merging neighbours in the lines gives."""
    pieces = [bytes([b]) for b in range(256)]
    rng = random.Random(3)
    rng.shuffle(pieces)
    words = [[bytes([b]) for b in word.encode()] for line in LINES for word in line.split(" ")]
    words += [[b" "] + word for word in words]
    while len(pieces) < 400:
        pairs = {}
        for word in words:
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + 1
        best = max(sorted(pairs), key=lambda pair: pairs[pair])
        pieces.append(b"".join(best))
        for word in words:
            at = 0
            while at + 1 < len(word):
                if (word[at], word[at + 1]) == best:
                    word[at:at + 2] = [b"".join(best)]
                at += 1
    return {piece: rank for rank, piece in enumerate(dict.fromkeys(pieces))}


def tiktoken_files():
    table = ranks()
    folder = folder_for("tiktoken")
    with open(os.path.join(folder, "tokenizer.model"), "wb") as file:
        for piece, rank in table.items():
            file.write(base64.b64encode(piece) + b" %d\n" % rank)
    texts = [t for t in TEXTS if "<" not in t and "[" not in t]
    encoding = tiktoken.Encoding("llama3", pat_str=LLAMA3, mergeable_ranks=table, special_tokens={})
    write("tiktoken", [(t, [len(table)] + encoding.encode(t), t) for t in texts], f"tiktoken {tiktoken.__version__}")
    # A test fills the file up to Llama 4's 200,000 pieces with some that no text holds.
    encoding = tiktoken.Encoding("llama4", pat_str=LLAMA4, mergeable_ranks=table, special_tokens={})
    write("tiktoken", [(t, [200_000] + encoding.encode(t), t) for t in texts], f"tiktoken {tiktoken.__version__}",
          "llama4_cases.json")
    folder = folder_for("tekken")
    special, used = 30, len(table) - 40
    rows = [{"rank": rank, "token_bytes": base64.b64encode(piece).decode(), "token_str": None}
            for piece, rank in table.items()]
    with open(os.path.join(folder, "tekken.json"), "w", encoding="utf-8") as file:
        json.dump({"config": {"pattern": TEKKEN, "num_vocab_tokens": len(table), "version": "v3",
                              "default_vocab_size": used + special, "default_num_special_tokens": special},
                   "vocab": rows}, file, indent=0)
    encoding = tiktoken.Encoding("tekken", pat_str=TEKKEN, special_tokens={},
                                 mergeable_ranks={p: r for p, r in table.items() if r < used})
    write("tekken", [(t, [1] + [special + i for i in encoding.encode(t)], t) for t in texts],
          f"tiktoken {tiktoken.__version__}")


unigram()
spm("spm-bpe", "bpe", True, False)
spm("spm-unigram", "unigram", False, True)
tiktoken_files()
