#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares token ids with the libraries that the models were published with, on a corpus of 1 MB and more in
many scripts. Usage: compare.py TOKENIZER_TOOL [part of a case's name]

Needs the Python package tokenizers, and uses sentencepiece and tiktoken where they are (pip install tokenizers
sentencepiece tiktoken). Published tokenizers come from $FINETUNE_MATERIAL, else shared/material beside the
sources; without them only what is trained here is compared. Exit code 77: skipped.
"""
import base64
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    import tokenizers
except ImportError:
    print("skipped: the Python package tokenizers is not installed")
    sys.exit(77)
import compare_chats  # needs it, too

try:
    import sentencepiece
except ImportError:
    sentencepiece = None
try:
    import tiktoken
except ImportError:
    tiktoken = None

SOURCE = os.environ.get("FINETUNE_SOURCE_DIR", os.path.join(os.path.dirname(__file__), "../../../.."))
MATERIAL = os.environ.get("FINETUNE_MATERIAL", os.path.join(SOURCE, "../shared/material"))
BYTES_WANTED = int(os.environ.get("FINETUNE_COMPARE_BYTES", 1_200_000))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?"
          r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")

# Sentences of our own, one or two a language, and things that tokenizers stumble over.
SENTENCES = """The ship's crew couldn't have known: they'd sailed 12,345 miles in 1987!
Der Fluß trägt übermäßig schöne Äpfel für Jürgens Straßenfest.
L'été où nous étions à Noël, l'œuvre coûtait 3,50 € à peine.
¿Dónde está el niño que comió piñas en el jardín de mañana?
O coração não é só o órgão; às vezes são três irmãos.
Большие корабли плывут по реке Волге, где шумит лес.
Великий учитель їде до Києва через ліс і поле.
Голямата къща стои до реката от сто години.
Η μεγάλη θάλασσα είναι γαλάζια και ο ήλιος λάμπει.
A magyar őszi szél fújja a leveleket, csütörtökön esőt hoz.
Žluťoučký kůň běžel přes pole a řeku k lesu.
Zażółć gęślą jaźń, a potem pójdź do źródła.
Güneş doğudan doğar, İstanbul'da ığdır ve şeker satılır.
Trời hôm nay rất đẹp và những cánh đồng lúa xanh mướt.
春天的花园里有许多红色和白色的花，孩子们在那里玩耍。
東京の春は桜が咲いて、とても綺麗です。カタカナもｶﾀｶﾅも。
오늘은 날씨가 맑아서 산책하기에 좋습니다.
الشمس تشرق من الشرق، والأطفال يلعبون في الحديقة.
مُحَمَّدٌ يَقْرَأُ الكِتابَ فِي المَدرَسَةِ.
השמש זורחת מעל הים והילדים רצים אל החוף.
शाम को नदी के किनारे बच्चे खेल रहे हैं।
সকালে নদীর ধারে অনেক পাখি ডাকে।
காலையில் பறவைகள் இனிமையாகப் பாடுகின்றன.
ఉదయం పూట పక్షులు పాడుతున్నాయి.
เด็กๆ กำลังเล่นอยู่ในสวนใกล้แม่น้ำ
ჩვენი მდინარე ლამაზია და ღრმა.
Մեր գետը շատ գեղեցիկ է և խոր։
ጠዋት ላይ ወፎች ይዘምራሉ።
ព្រឹកនេះមេឃស្រឡះល្អណាស់
မနက်ခင်းမှာ ငှက်တွေ သီချင်းဆိုကြတယ်။
def f(x, *args):\n    return {k: v**2 for k, v in x.items() if v != 0x1F}  # done
\tif (a->b[i] && !c) { printf("%d\\n", ++n); }\r\n\r\n        }
a  b   c    d     e\n\n\n\n   f \u00a0\u2003\u3000g\u200bh\ufeff \u2028\u2029
e\u0301e\u0323\u0301 \u1100\u1161\u11a8 \u212b ﬁ ½ ⅷ ① ㎏ Ａｂｃ １２３ \u0345\u0300
👍🏽 👨‍👩‍👧‍👦 🇩🇪🇫🇷 ☺️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 𝔘𝔫𝔦 𝟙𝟚𝟛 𐍈 𒀀 𓀀 \U0001f9ff
'S 'll I'M we'Ve don't 's'd ''' "" «» „“ -- —… :-) http://a.b/c?d=e&f=%20#g x_y-z@w.org
▁ ▁▁ _▁_ <0x41> <s> </s> <unk> [INST] <|im_start|> <|endoftext|> <|begin_of_text|><|eot_id|> <think>
0 1 12 123 1234 12345 3.14159 1e-10 ٣٤٥ ०१२ 一二三 Ⅻ ²³
""".split("\n")


def sample_text(rng):
    """A line: neighbouring sentences, cut anywhere, sometimes with random characters."""
    parts = [rng.choice(SENTENCES) for _ in range(rng.randint(1, 4))]
    text = rng.choice(["", " ", "\n", "  "]).join(parts)
    if rng.random() < 0.3:
        text = text[rng.randint(0, len(text)):] + text[:rng.randint(0, len(text))]
    if rng.random() < 0.15:
        # Assigned long ago, so that every library's tables know them.
        ranges = [(0x20, 0x7f), (0xa0, 0x17f), (0x370, 0x3ff), (0x400, 0x4ff), (0x5d0, 0x5ea), (0x620, 0x64a),
                  (0x905, 0x939), (0x3041, 0x3096), (0x4e00, 0x9fa5), (0xac00, 0xd7a3), (0x1f600, 0x1f64f)]
        low, high = rng.choice(ranges)
        text += "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 60)))
    return text


def corpus(bytes_wanted):
    rng = random.Random(20261122)
    texts = ["", " ", "\n", "a", "  ", "▁", "\t \n", "<s>", " and so on" * 12_000, "春a" * 15_000, "a<s>b </s> c", "<unk>"]
    size = 0
    folder = os.path.join(MATERIAL, "datasets")
    for root, _, files in sorted(os.walk(folder)):
        for name in sorted(files):
            if not name.endswith((".jsonl", ".json", ".txt")):
                continue
            with open(os.path.join(root, name), encoding="utf-8") as file:
                content = file.read(60_000)
            at = 0
            while at < len(content):
                step = rng.choice([40, 200, 1000, 4000])
                texts.append(content[at:at + step])
                at += step
    size = sum(len(t.encode()) for t in texts)
    made = 0
    while size + made < bytes_wanted or made < bytes_wanted // 2:
        texts.append(sample_text(rng))
        made += len(texts[-1].encode())
    return texts


def ours(tool, folder, texts):
    lines = "".join(json.dumps(t, ensure_ascii=False) + "\n" for t in texts)
    done = subprocess.run([tool, "ids", folder], input=lines.encode(), stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        return None
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]


class Comparison:
    def __init__(self, tool, wanted):
        self.tool, self.wanted, self.failures, self.compared = tool, wanted, 0, 0
        self.texts, self.sentences = corpus(BYTES_WANTED), SENTENCES

    def run(self, name, folder, encode, decode=None, texts=None, round_trip=False):
        """`encode` and `decode` are the other library's; None for decode does not compare texts."""
        if self.wanted not in name:
            return
        texts = self.texts if texts is None else texts
        answers = ours(self.tool, folder, texts)
        if answers is None or len(answers) != len(texts):
            print(f"{name}: FAILED, no answer")
            self.failures += 1
            return
        wrong = 0
        for text, (ids, back) in zip(texts, answers):
            expected = encode(text)
            problems = []
            if ids != expected:
                at = len(os.path.commonprefix([ids, expected]))
                problems.append(f"ids from {at}: {ids[at:at + 12]} expected {expected[at:at + 12]}")
            if decode is not None and back != decode(expected):
                problems.append(f"decoded {back[:80]!r} expected {decode(expected)[:80]!r}")
            if round_trip and back != text:
                problems.append(f"decoded {back[:80]!r}")
            if problems:
                wrong += 1
                if wrong <= 5:
                    print(f"{name}: {text[:80]!r}: " + "; ".join(problems))
        size = sum(len(t.encode()) for t in texts)
        print(f"{name}: {len(texts)} texts, {size / 1e6:.2f} MB, {wrong} differ")
        self.failures += wrong > 0
        self.compared += 1


def hugging_face(comparison, name, folder):
    library = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    library.no_truncation()
    comparison.run(name, folder, lambda t: library.encode(t).ids,
                   lambda ids: library.decode(ids, skip_special_tokens=False))


def without_special(texts):
    """SentencePiece and tiktoken know no names of special tokens in text."""
    return [t for t in texts if not any(mark in t for mark in ("<", "[INST"))]


def published(comparison, scratch):
    def folder(name):
        return os.path.join(MATERIAL, "tokenizers", name)

    for name in ("llama3", "llama2", "qwen2.5", "qwen3", "mistral-7b-instruct-v0.3"):
        if os.path.exists(os.path.join(folder(name), "tokenizer.json")):
            hugging_face(comparison, f"{name}/tokenizer.json", folder(name))
            compare_chats.chats(comparison, f"{name}/tokenizer.json", folder(name),
                                tokenizers.Tokenizer.from_file(os.path.join(folder(name), "tokenizer.json")))
    if os.path.exists(os.path.join(folder("llama2"), "tokenizer.json")):
        compare_chats.schemes(comparison, scratch, folder("llama2"))
    for name, file in (("llama2", "tokenizer.model"), ("mistral-7b-instruct-v0.3", "tokenizer.model.v3")):
        path = os.path.join(folder(name), file)
        if os.path.exists(path):
            made = os.path.join(scratch, name)
            os.mkdir(made)
            os.symlink(path, os.path.join(made, file))
            sentence_pieces(comparison, f"{name}/{file}", made, path)
            library = tokenizers.Tokenizer.from_file(os.path.join(folder(name), "tokenizer.json"))
            # Mistral's tokenizer.json leaves out the prefix before a space; sentencepiece does not.
            texts = [t for t in comparison.texts if name == "llama2" or not t.startswith((" ", "▁"))]
            comparison.run(f"{name}/{file} as tokenizer.json", made, lambda t, lib=library: lib.encode(t).ids,
                           lambda ids, lib=library: lib.decode(ids, skip_special_tokens=False), texts=texts)
    path = os.path.join(folder("llama3"), "tokenizer.model")
    if os.path.exists(path):
        made = os.path.join(scratch, "llama3")
        os.mkdir(made)
        os.symlink(path, os.path.join(made, "tokenizer.model"))
        library = tokenizers.Tokenizer.from_file(os.path.join(folder("llama3"), "tokenizer.json"))
        comparison.run("llama3/tokenizer.model as tokenizer.json", made, lambda t: library.encode(t).ids,
                       lambda ids: library.decode(ids, skip_special_tokens=False), round_trip=False)
        with open(path, "rb") as file:
            ranks = {base64.b64decode(piece): int(rank) for piece, rank in (line.split() for line in file)}
        like_tekken(comparison, scratch, ranks)
        like_qwen1(comparison, scratch, folder("qwen2.5"))
        if tiktoken:
            encoding = tiktoken.Encoding("llama3", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={})
            comparison.run("llama3/tokenizer.model as tiktoken", made,
                           lambda t: [128000] + encoding.encode(t, disallowed_special=()),
                           texts=without_special(comparison.texts))


def like_tekken(comparison, scratch, ranks):
    """Llama 3's pieces in the form of a tekken.json, of which all but 3,000 are used."""
    if not tiktoken:
        return
    made = os.path.join(scratch, "tekken")
    os.mkdir(made)
    special, used = 1000, len(ranks) - 3000
    rows = [{"rank": rank, "token_bytes": base64.b64encode(piece).decode(), "token_str": None}
            for piece, rank in ranks.items()]
    with open(os.path.join(made, "tekken.json"), "w", encoding="utf-8") as file:
        json.dump({"config": {"pattern": TEKKEN, "num_vocab_tokens": len(ranks), "version": "v3",
                              "default_vocab_size": used + special, "default_num_special_tokens": special},
                   "vocab": rows}, file)
    encoding = tiktoken.Encoding("tekken", pat_str=TEKKEN, special_tokens={},
                                 mergeable_ranks={p: r for p, r in ranks.items() if r < used})
    comparison.run("tekken.json as tiktoken", made,
                   lambda t: [1] + [special + i for i in encoding.encode(t, disallowed_special=())],
                   texts=without_special(comparison.texts))


def like_qwen1(comparison, scratch, qwen2):
    """Qwen 1 has the pieces and the pattern of Qwen 2.5, and composes characters alike."""
    path = os.path.join(qwen2, "tokenizer.json")
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        vocabulary = json.load(file)["model"]["vocab"]
    printing = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    alphabet = {chr(b): b for b in printing}
    alphabet.update({chr(0x100 + i): b for i, b in enumerate(b for b in range(256) if b not in printing)})
    made = os.path.join(scratch, "qwen1")
    os.mkdir(made)
    with open(os.path.join(made, "qwen.tiktoken"), "wb") as file:
        for piece, rank in sorted(vocabulary.items(), key=lambda item: item[1]):
            file.write(base64.b64encode(bytes(alphabet[c] for c in piece)) + b" %d\n" % rank)
    library = tokenizers.Tokenizer.from_file(path)
    texts = [t for t in comparison.texts if "<|" not in t and "<think" not in t and "<tool" not in t]
    comparison.run("qwen.tiktoken as Qwen 2.5", made, lambda t: library.encode(t).ids,
                   lambda ids: library.decode(ids, skip_special_tokens=False), texts=texts)


def sentence_pieces(comparison, name, folder, path, bos=True):
    if not sentencepiece:
        return
    library = sentencepiece.SentencePieceProcessor(model_file=path)
    start = [library.bos_id()] if bos and library.bos_id() >= 0 else []
    comparison.run(f"{name} as sentencepiece", folder, lambda t: start + library.encode(t),
                   texts=without_special(comparison.texts))


def trained(comparison, scratch):
    """Unigram and BPE tokenizers made here, small enough that much of the corpus is unknown to them."""
    text = os.path.join(scratch, "train.txt")
    rng = random.Random(7)
    with open(text, "w", encoding="utf-8") as file:
        for _ in range(3000):
            file.write(sample_text(rng).replace("\n", " ").replace("\r", " ") + "\n")
    kinds = [(model, rule, fallback, extra, whole)
             for model, rule, fallback, extra, whole in
             [("unigram", "nmt_nfkc", False, True, True), ("unigram", "identity", True, False, True),
              ("unigram", "nfkc_cf", True, True, False), ("bpe", "nmt_nfkc", True, True, True),
              ("bpe", "identity", False, False, True)]]
    for model, rule, fallback, extra, prefix in kinds if sentencepiece else []:
        name = f"trained-{model}-{rule}"
        made = os.path.join(scratch, name)
        os.mkdir(made)
        sentencepiece.SentencePieceTrainer.train(
            input=text, model_prefix=os.path.join(made, "tokenizer"), model_type=model, vocab_size=1200,
            normalization_rule_name=rule, byte_fallback=fallback, remove_extra_whitespaces=extra,
            add_dummy_prefix=prefix, character_coverage=0.98, user_defined_symbols=["▁▁▁", "don't", "春天"],
            control_symbols=["[X]"], minloglevel=2, num_threads=1, input_sentence_size=3000)
        sentence_pieces(comparison, name, made, os.path.join(made, "tokenizer.model"))
        if model == "unigram":
            unigram_json(comparison, scratch, name, os.path.join(made, "tokenizer.model"))


def unigram_json(comparison, scratch, name, path):
    """The same pieces as a tokenizer.json in T5's and XLM-R's manner."""
    library = sentencepiece.SentencePieceProcessor(model_file=path)
    pieces = [(library.id_to_piece(i), library.get_score(i)) for i in range(library.get_piece_size())]
    charsmap = normalizer_map(path)
    for split in (True, False):
        made = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, library.unk_id(),
                                                              byte_fallback="<0x00>" in dict(pieces)))
        steps = [tokenizers.normalizers.Precompiled(charsmap)] if charsmap else []
        steps += [tokenizers.normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]
        made.normalizer = tokenizers.normalizers.Sequence(steps)
        made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(split=split)
        if split:
            made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
                [tokenizers.pre_tokenizers.WhitespaceSplit(), made.pre_tokenizer])
        made.decoder = tokenizers.decoders.Metaspace()
        made.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
        made.add_special_tokens(["<s>", "</s>"])
        folder = os.path.join(scratch, f"{name}-{split}")
        os.mkdir(folder)
        made.save(os.path.join(folder, "tokenizer.json"))
        hugging_face(comparison, f"{name}/tokenizer.json split={split}", folder)


def normalizer_map(path):
    """Field 2 of field 3 of the model file: the precompiled map."""
    def fields(data):
        at = 0

        def number():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 0x7f) << shift
                shift += 7
                if byte < 0x80:
                    return value
        while at < len(data):
            tag = number()
            if tag & 7 == 0:
                yield tag >> 3, number()
            else:
                size = {1: 8, 5: 4}.get(tag & 7) or number()
                yield tag >> 3, data[at:at + size]
                at += size

    with open(path, "rb") as file:
        spec = next(value for field, value in fields(file.read()) if field == 3)
    return next((value for field, value in fields(spec) if field == 2), b"")


def main():
    comparison = Comparison(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
    with tempfile.TemporaryDirectory() as scratch:
        trained(comparison, scratch)
        published(comparison, scratch)
    if comparison.compared == 0:
        print("skipped: neither published tokenizers nor sentencepiece are here")
        return 77
    return 1 if comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
