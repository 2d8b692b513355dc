#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the fuzz targets: small sound files, and the attacks that such readers met elsewhere.

Usage: make_seeds.py. Overwrites files of the same names in seeds/; findings, named finding_*, stay.
"""

import base64
import json
import struct

from seed_folder import HERE, put


def safetensors(header, data=b"", length=None):
    if not isinstance(header, (bytes, str)):
        header = json.dumps(header, separators=(",", ":"))
    if isinstance(header, str):
        header = header.encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds():
    sound = {"__metadata__": {"format": "pt"}, "b": tensor("BF16", [2, 3], 4, 16),
             "a": tensor("F32", [], 0, 4), "e": tensor("F16", [0, 9], 16, 16)}
    cases = {
        "sound": safetensors(sound, bytes(16)),
        "empty": safetensors({}),
        "padded": safetensors(json.dumps(sound) + "   ", bytes(16)),
        "length_of_100_mb": safetensors("{}", length=100_000_001),
        "length_of_64_bits": safetensors("{}", length=2**64 - 1),
        "length_beyond_the_file": safetensors("{}", length=3),
        "shorter_than_a_length": b"\0\0\0\0\0\0\0",
        "no_object": safetensors("[]"),
        "not_utf8": safetensors(b'{"\xff":1}'),
        "nul": safetensors(b'{}\0{"a":1}'),
        "name_twice": safetensors('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                                  '"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', b"xx"),
        "overlap": safetensors({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 1, 3)}, b"xxx"),
        "hole": safetensors({"a": tensor("U8", [1], 0, 1), "b": tensor("U8", [1], 2, 3)}, b"xxx"),
        "bytes_at_the_end": safetensors({"a": tensor("U8", [1], 0, 1)}, b"xPK\3\4"),
        "incomplete": safetensors({"a": tensor("U8", [9], 0, 9)}, b"x"),
        "end_before_begin": safetensors({"a": tensor("U8", [1], 1, 0)}, b"x"),
        "shape_overflows": safetensors({"a": tensor("F64", [2**62, 2**62, 2], 0, 8)}, bytes(8)),
        "shape_wraps_to_fit": safetensors({"a": tensor("F32", [2**62, 4], 0, 0)}),
        "offset_of_64_bits": safetensors({"a": tensor("U8", [1], 2**64 - 1, 2**64)}, b"x"),
        "nine_dims": safetensors({"a": tensor("U8", [1] * 9, 0, 1)}, b"x"),
        "negative_dim": safetensors({"a": tensor("U8", [-1, -1], 0, 1)}, b"x"),
        "unknown_dtype": safetensors({"a": tensor("F7", [1], 0, 1)}, b"x"),
        "metadata_of_numbers": safetensors({"__metadata__": {"a": 1}}),
        "deep": safetensors('{"a":' + "[" * 3000 + "]" * 3000 + "}"),
        "git_lfs_pointer": b"version https://git-lfs.github.com/spec/v1\nsize 3\n",
    }
    for name, content in cases.items():
        put("safetensors", name, content)


def index_seeds():
    def index(value):
        return json.dumps({"metadata": {"total_size": 8}, "weight_map": {"a": "model-1.safetensors", "b": value}})

    cases = {
        "sound": index("model-2.safetensors"),
        "parent": index("../secrets"),
        "absolute": index("/etc/passwd"),
        "hidden": index(".ssh"),
        "separator": index("a/b"),
        "backslash": index("..\\b"),
        "nul_in_name": index("a\0b"),
        "long_name": index("x" * 256),
        "number": index(7),
        "nested": index({"c": "d"}),
        "no_map": "{}",
        "map_is_a_list": '{"weight_map":["a"]}',
        "map_twice": '{"weight_map":{"a":"b"},"weight_map":{"c":"d"}}',
        "tensor_twice": '{"weight_map":{"a":"b","a":"c"}}',
        "deep": '{"x":' + "[" * 3000 + "]" * 3000 + "}",
        "escapes_for_terminals": index("\x1b[2J\u009b2J\u202e"),
    }
    for name, content in cases.items():
        put("index", name, content)


def jsonl_seeds():
    sound = '{"instruction": "a", "input": null, "output": "b"}'
    cases = {
        "sound": f"{sound}\n\n{sound}\r\n",
        "array": f"[{sound},\n {sound}]",
        "byte_order_mark": b"\xef\xbb\xbf" + sound.encode(),
        "bytes": b'{"instruction": "\xff\xfe"}\n',
        "nul": sound.encode() + b'\0{"hidden": 1}\n',
        "deep_line": '{"a":' + "[" * 3000 + "]" * 3000 + "}\n",
        "deep_array": "[" * 3000,
        "open_string": '[{"a": "b}]',
        "key_twice": '{"instruction": "a", "instruction": "b"}\n',
        "no_objects": "1\n\"a\"\n[]\nnull\n",
        "number_out_of_range": '{"instruction": 1e999}\n',
        "surrogates": '{"instruction": "\\ud800"}\n{"instruction": "\\ud83d\\ude00"}\n',
        "blank": " \n\t\n",
        "empty": "",
        "missing_field": '{"instructoin": "a"}\n',
        "names_for_terminals": '{"\\u001b[2J\\u009b": "a"}\n',
    }
    for name, content in cases.items():
        put("jsonl", name, content)


def deck_seeds():
    sound = """# A deck.
model.path = 'a/b'
[parallel]
sharding = "NO_SHARD" # "x
tp = 0x2
[optimizer]
lr = 1_0.5e-3
beta2 = 0.95
warmup_steps = 10\r
fused = true
"""
    cases = {
        "sound": sound,
        "overrides": sound + "\0optimizer.lr=1e-4\nmodel.path=x y\nparallel.sharding='FULL_SHARD'\n",
        "kinds": "model.path = '''\nm'''\n[optimizer]\nx = 1979-05-27T07:32:00Z\ny = [1, [2.5, 'a'], {b = 1}]\n"
                 "[[other]]\nz = inf\n",
        # What broke TOML libraries.
        "overread_16_bytes": bytes.fromhex("276120e12761" "20203d205b3d" "205b7e31"),
        "endless_20_bytes": bytes.fromhex("236120f5203d20203d20200a2320780961097f88"),
        "endless_42_bytes": 'a = ? "x"\nc= [[1]\nb ? "x"\nc= [[ 1[\n #? = 1',
        "assertion": "[|]",
        "deep_array": "a = " + "[" * 10_000,
        "deep_tables": "a = " + "{a=" * 900 + "1" + "}" * 900,
        "deep_dots": "model.path = 'm'\na" + ".a" * 1000 + " = 1\n",
        "long_line": "a = [" + "1," * 2000 + "]",
        "control_byte": "a = '\x1b[2J'\n",
        "nan": "model.path = 'm'\n[optimizer]\nlr = nan\nbeta2 = -inf\n",
        "unfinished": "a = \"\"\"\\u00e",
    }
    for name, content in cases.items():
        put("deck", name, content)
    words = ['[', ']', '[[', ']]', '{', '}', '\\"', '\'', '\\"\\"\\"', "'''", '\\x0a', '=', '.', ',', '#', '\\\\u00e9',
             '1e999', '1979-05-27', '0x', 'inf', 'nan', 'true', 'model', 'path', 'optimizer', 'lr', 'parallel', 'tp']
    (HERE / "deck.dict").write_text("".join(f'"{word}"\n' for word in words))


def tokenizer_seeds():
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    sentencepiece = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": i == 2,
                          "normalized": i == 2, "special": True} for i, text in enumerate(["<unk>", "<s>", "</s>"])],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                      {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                  "ignore_merges": False,
                  "vocab": {piece: i for i, piece in enumerate(
                      ["<unk>", "<s>", "</s>"] + fallback + ["\u2581", "a", "b", "ab", "\u2581a", "\u2581ab"])},
                  "merges": ["a b", "\u2581 a", "\u2581 ab"]},
    }
    letters = [chr(c) for c in list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
               + list(range(0x100, 0x144))]
    byte_level = {
        "version": "1.0",
        "added_tokens": [{"id": 260, "content": "<|end|>", "special": True}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\p{N}{1,3}|[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
             "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
        "model": {"type": "BPE", "ignore_merges": True,
                  "vocab": {piece: i for i, piece in enumerate(letters + ["th", "the", "\u0120the", "\u0120t"])},
                  "merges": [["t", "h"], ["th", "e"], ["\u0120", "the"], ["\u0120", "t"]]},
    }
    small = {
        "version": "1.0",
        "added_tokens": [{"id": 4, "content": "<s>", "special": True}],
        "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "unk_token": "c", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3}, "merges": ["a b"]},
    }

    def changed(**parts):
        return json.dumps({**small, **parts}, ensure_ascii=False)

    def model(**parts):
        return changed(model={**small["model"], **parts})

    def split(pattern, **parts):
        return changed(pre_tokenizer={"type": "Split", "pattern": pattern, "behavior": "Isolated",
                                      "invert": False, **parts})

    def replace(pattern, content):
        return {"type": "Replace", "pattern": pattern, "content": content}

    stages = [{"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "MergedWithPrevious"},
              {"type": "Digits", "individual_digits": True}, {"type": "Whitespace"},
              {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}]
    forms = [{"type": form} for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")]
    cases = {
        "sound": changed(),
        "sentencepiece": json.dumps(sentencepiece, ensure_ascii=False),
        "byte_level": json.dumps(byte_level, ensure_ascii=False),
        "with_config": changed() + '\0{"eos_token": "<s>", "bos_token": {"content": "<s>"}}',
        "stages": changed(pre_tokenizer={"type": "Sequence", "pretokenizers": stages}),
        "forms": changed(normalizer={"type": "Sequence", "normalizers": forms + [
            {"type": "Strip", "strip_left": True, "strip_right": True}]}),
        "metaspace": changed(decoder={"type": "Metaspace", "replacement": "\u2581"},
                             pre_tokenizer={"type": "Metaspace", "replacement": "\u2581"}),
        # A byte token is a text: read as a number this one is -1, and before the table.
        "byte_token_below_zero": model(vocab={"<0x-1>": 0, "<0xGG>": 1, "c": 2, "<0x 1>": 3}, merges=[],
                                       byte_fallback=True),
        "special_id_beyond_the_end": changed(added_tokens=[{"id": 2**31 - 1, "content": "<s>"}]),
        "id_of_64_bits": model(vocab={"a": 2**64 - 1}, merges=[]),
        "id_twice": model(vocab={"a": 0, "b": 0}, merges=[]),
        "gap": model(vocab={"a": 0, "b": 2}, merges=[], unk_token=None),
        "merge_of_nothing": model(merges=["a z"]),
        "merge_in_a_circle": model(merges=["a b", "a b", "b a"]),
        "charsmap": changed(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        "nested_quantifiers": split({"Regex": "(a*)*b|(.+)+x"}),
        "polynomial": split({"Regex": "(?:a|b|ab| )*x"}),
        "start_of_match_moved": split({"Regex": "(?=a\\Kb)|\\Ka"}),
        "empty_matches": split({"Regex": "x*"}, invert=True, behavior="Contiguous"),
        "recursive_pattern": split({"Regex": "(a(?1)?b|(?R))"}),
        "large_repeats": split({"Regex": "(((a{1,999}){1,999}){1,999}){1,999}"}),
        "blown_up": changed(normalizer={"type": "Sequence",
                                        "normalizers": [replace({"String": "a"}, "a" * 60)] * 8}),
        "blown_up_decoder": changed(decoder={"type": "Sequence",
                                             "decoders": [replace({"Regex": "x*"}, "aaaa")] * 3}),
        "deep": '{"model":' + "[" * 3000 + "]" * 3000 + "}",
        "key_twice": '{"version":"1.0","version":"1.0"}',
    }
    for name, content in {**cases, **tokenizer_file_seeds(small)}.items():
        put("tokenizer", name, content)


def field(number, value):
    """Of a protobuf message: a number, a float of four bytes, or bytes."""
    def varint(n):
        return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def sentencepiece_model(model_type, rows, trainer=b"", normalizer=b""):
    pieces = b"".join(field(1, field(1, text) + field(2, float(score)) + field(3, kind)) for text, score, kind in rows)
    return pieces + field(2, field(3, model_type) + trainer) + field(3, normalizer)


def tokenizer_file_seeds(small):
    """Unigram models, and files that are not tokenizer.json."""
    rows = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3), ("\u2581", -2, 1), ("a", -3, 1), ("b", -3, 1), ("ab", -1, 1),
            ("\u2581ab", -1, 1), ("dog", 0, 4)]
    # A trie of one node for "A" (65), which becomes "a".
    units = [65 ^ 0 << 10] + [0] * 127
    units[0] = 1 << 10
    units[1 ^ 65] = 65 | 1 << 8 | 2 << 10
    units[1 ^ 65 ^ 2] = 1 << 31
    charsmap = struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + b"a\0"
    fallback = [(f"<0x{byte:02X}>", 0, 6) for byte in range(256)]
    ranks = "".join(f"{base64.b64encode(bytes([byte])).decode()} {byte}\n" for byte in range(256))
    tekken = {"config": {"pattern": "\\p{L}+|\\P{L}", "default_vocab_size": 24, "default_num_special_tokens": 21},
              "vocab": [{"rank": i, "token_bytes": text} for i, text in enumerate(["YQ==", "Yg==", "YWI=", "Yw=="])]}
    unigram = {"type": "Unigram", "unk_id": 2, "vocab": [["a", -1], ["ab", -1.5], ["c", -2.0], ["\u2581", -3e300]]}
    bpe = sentencepiece_model(2, rows, normalizer=field(4, 0))
    return {
        "unigram": json.dumps({**small, "model": unigram}),
        "unigram_charsmap": json.dumps({**small, "model": unigram, "normalizer": {
            "type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}}),
        "unigram_fallback": json.dumps({**small, "model": {**unigram, "byte_fallback": True, "unk_id": None}}),
        "roberta": json.dumps({**small, "post_processor": {
            "type": "RobertaProcessing", "sep": ["b", 1], "cls": ["a", 0], "trim_offsets": True,
            "add_prefix_space": True}}),
        "tekken": json.dumps(tekken) + '\0{"add_bos_token": false}',
        "tekken_config": json.dumps(tekken) + '\0{"added_tokens_decoder": {"24": {"content": "dog", "special": true}}}',
        "tiktoken": ranks + base64.b64encode(b"the").decode() + " 256\n",
        "tiktoken_rank": "YQ== 4294967296\n",
        "model_bpe": bpe,
        "model_fallback": sentencepiece_model(2, rows + fallback, trainer=field(35, 1), normalizer=field(4, 0)),
        "model_unigram": sentencepiece_model(1, rows),
        "model_charsmap": sentencepiece_model(1, rows, normalizer=field(2, charsmap)),
        "model_map_beyond": sentencepiece_model(1, rows, normalizer=field(2, struct.pack("<4I", 12, 2**31 - 1, 0, 0))),
        "model_scores": sentencepiece_model(1, rows + [("z", "nan", 1), ("y", 3e38, 1)]),
        "model_cut": bpe[:-3],
        "model_length": b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        "model_long_fixed": sentencepiece_model(2, rows + [("x" * 300, 0, 4)]),
    }


def manifest_seeds():
    head = ('{"format":"finetune checkpoint",\n"version":1,\n"step":3,\n"world_size":2,\n"block_bytes":64,\n'
            '"created_by":"seed",\n"state_bytes":2,\n"state_fingerprint":"00"')
    files = '"node00000.h5",4096,1],["node00001.h5",4096,4294967295'
    tensors = '"exp_avg","w","BF16",[0,9]],["param","w","F32",[5,8]'
    slices = '1,0,0,24,1000,[1,2]],[1,1,24,16,1000,[3]'

    def body(files=files, tensors=tensors, slices=slices, head=head, boxes=None):
        cut = "" if boxes is None else f'"boxes":[\n[{boxes}]],\n'
        version = head if boxes is None else head.replace('"version":1', '"version":2')
        return f'{version},\n"files":[\n[{files}]],\n"tensors":[\n[{tensors}]],\n{cut}"slices":[\n[{slices}]],\n'

    in_boxes = "0,0,0,25,1000,[1,2]],[1,1,0,15,1000,[3]"

    def cut(boxes, slices=in_boxes):
        return body(boxes=boxes, slices=slices)

    cases = {
        "sound": body(),
        "file_elsewhere": body(files='"../node00000.h5",4096,1],["/dev/sda",4096,1'),
        "tensor_elsewhere": body(tensors='"param","../w","F32",[5,8]'),
        "shape_overflows": body(tensors='"param","w","F32",[4294967296,4294967296,4294967296]'),
        "sizes_overflow": body(files=f'"node00000.h5",{2**61},1],["node00001.h5",{2**61},1],["node00002.h5",{2**61},1],'
                                     f'["node00003.h5",{2**61},1],["node00004.h5",{2**61},1'),
        "element_twice": body(slices='1,0,0,24,1000,[1,2]],[1,1,23,17,1000,[3,4]'),
        "element_missing": body(slices='1,0,0,24,1000,[1,2]],[1,1,25,15,1000,[3]'),
        "bytes_shared": body(slices='1,0,0,24,1000,[1,2]],[1,0,24,16,1001,[3]'),
        "beyond_the_file": body(slices='1,0,0,24,4095,[1,2]],[1,1,24,16,1000,[3]'),
        "no_such_file": body(slices='1,7,0,24,1000,[1,2]],[1,1,24,16,1000,[3]'),
        "checksums_lack": body(slices='1,0,0,24,1000,[1]],[1,1,24,16,1000,[3]'),
        "many_checksums": body(slices="1,0,0,24,1000,[" + ",".join("1" * 500) + "]"),
        "many_dims": body(tensors='"param","w","F32",[' + ",".join("1" * 500) + "]"),
        "block_of_nothing": body(head=head.replace('"block_bytes":64', '"block_bytes":0')),
        "negative": body(head=head.replace('"step":3', '"step":-3')),
        "nested": body(slices="[[[1]]]"),
        "nul": body() + '"fingerprint":"x"}\0',
        # Format version 2.
        "one_box": cut("1,[0,0],[5,8]", "0,0,0,24,1000,[1,2]],[0,1,24,16,1000,[3]"),
        "two_boxes": cut("1,[0,0],[5,5]],[1,[0,5],[5,3]"),
        "boxes_overlap": cut("1,[0,0],[5,5]],[1,[0,4],[5,3]"),
        "boxes_with_a_gap": cut("1,[0,0],[5,5]],[1,[0,6],[5,2]"),
        "box_outside": cut("1,[0,0],[5,5]],[1,[0,5],[5,4]"),
        "box_overflows": cut(f"1,[0,0],[5,5]],[1,[0,{2**63 - 1}],[5,{2**63 - 1}]"),
        "box_of_another_rank": cut("1,[0],[5]],[1,[0,5,0],[5,3,1]"),
        "box_of_no_tensor": cut("7,[0,0],[5,5]],[9,[0,5],[5,3]"),
        "box_without_boxes": cut("", "0,0,0,24,1000,[1,2]"),
    }
    for name, content in cases.items():
        put("manifest", name, content)


def reshard_seeds():
    for i in range(6):
        put("reshard", f"ranks_{i}", bytes((37 * i * k + 11 * k) % 256 for k in range(40 + 60 * i)))


def jinja_seeds():
    cases = json.loads((HERE.parent.parent / "golden/jinja/cases.json").read_text(encoding="utf-8"))["cases"]
    for i, case in enumerate(cases):
        if len(case["template"]) < 120:
            put("jinja", f"case_{i}", case["template"])
    put("jinja", "tools", "{%- for m in messages %}{%- if m.tool_calls %}{%- for c in m.tool_calls %}{{ c.function.arguments | tojson(indent=2) }}"
        "{%- endfor %}{%- endif %}{{ m['role'] ~ m.content | trim }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}")


safetensors_seeds()
jinja_seeds()
index_seeds()
jsonl_seeds()
deck_seeds()
tokenizer_seeds()
manifest_seeds()
reshard_seeds()
