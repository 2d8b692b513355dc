#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What lm-evaluation-harness says of answers to instructions: of each whether it is followed, strictly and loosely.

    NLTK_DATA=FOLDER python make_ifeval.py          # pip: lm_eval 0.4, nltk (with its punkt_tab), langdetect, immutabledict
    NLTK_DATA=FOLDER python make_ifeval.py OTHER.json 5000 7      # more of them, of another seed, for a comparison by hand

Writes ifeval.json: a list of [instruction, kwargs, answer, strict, loose]. Answers are put together at random from pieces that the
instructions are about, so that about half of them are followed. Sentences are those on which NLTK's statistics and rules agree.
"""
import importlib
import json
import pathlib
import random
import sys
import types

import lm_eval

HERE = pathlib.Path(__file__).resolve().parent
for name in ("lm_eval.tasks", "lm_eval.tasks.ifeval"):
    # The packages themselves load data sets and models.
    package = types.ModuleType(name)
    package.__path__ = [str(pathlib.Path(lm_eval.__file__).parent / "/".join(name.split(".")[1:]))]
    sys.modules[name] = package
utils = importlib.import_module("lm_eval.tasks.ifeval.utils")

PIECES = ["The river runs east. ", "Is it far? ", "Yes! ", "NOBODY knows, ", "a WIDE and OLD river ", "flows on. ", "* one\n", "- two\n",
          "*three*\n", "**four** ", "** ** ", "***", "\n***\n", "\n\n", "\n", "[name] ", "[] ", "P.S. Write soon. ", "P.P.S. More. ",
          "p. s. small. ", "<<A Title>>\n", "<< >> ", "SECTION 1\n", "Section 2 ", "******", "\n******\n", "My answer is yes. ",
          "My answer is maybe. ", "\"quoted\" ", "\"", "{\"a\": 1}", "```json\n{\"b\": [2]}\n```", "Is there anything else? ",
          "Dr. Smith met Mrs. Jones. ", "It costs 3.50 dollars. ", "don't ", "DON'T ", "WE'LL ", "rivers ", "River's ", "'First ",
          "\u00c4rger ", "stra\u00dfe ", "caf\u00e9 ", "\u4f60\u597d ", "Answer: ", "Note that "]
WORDS = ["river", "far", "yes", "title", "rivers?", "\u00e4rger", "smith", "a", "nobody"]


def instruction(rng):
    n = rng.randrange(0, 6)
    relation = rng.choice(["less than", "at least"])
    return rng.choice([
        ("keywords:existence", {"keywords": rng.sample(WORDS, rng.choice([1, 2]))}),
        ("keywords:frequency", {"keyword": rng.choice(WORDS), "frequency": max(1, n // 2), "relation": relation}),
        ("keywords:forbidden_words", {"forbidden_words": rng.sample(WORDS, rng.choice([1, 2]))}),
        ("keywords:letter_frequency", {"letter": rng.choice("aeiz"), "let_frequency": 2 * n + 1, "let_relation": relation}),
        ("length_constraints:number_sentences", {"num_sentences": n + 1, "relation": relation}),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 1 + n // 2}),
        ("length_constraints:number_words", {"num_words": 4 * n + 1, "relation": relation}),
        ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 1 + n // 3, "nth_paragraph": 1,
                                                         "first_word": rng.choice(["the", "first", "yes", "nobody"])}),
        ("detectable_content:number_placeholders", {"num_placeholders": 1 + n // 3}),
        ("detectable_content:postscript", {"postscript_marker": rng.choice(["P.S.", "P.P.S", "Note"])}),
        ("detectable_format:number_bullet_lists", {"num_bullets": 1 + n // 2}),
        ("detectable_format:constrained_response", {}),
        ("detectable_format:number_highlighted_sections", {"num_highlights": 1 + n // 2}),
        ("detectable_format:multiple_sections", {"section_spliter": rng.choice(["SECTION", "Section"]), "num_sections": 1 + n // 4}),
        ("detectable_format:json_format", {}),
        ("detectable_format:title", {}),
        ("combination:two_responses", {}),
        ("combination:repeat_prompt", {"prompt_to_repeat": rng.choice(["The River runs east. ", "is it far?"])}),
        ("startend:end_checker", {"end_phrase": rng.choice(["Is there anything else?", "flows on.", "yes!"])}),
        ("startend:quotation", {}),
        ("change_case:capital_word_frequency", {"capital_frequency": 1 + n // 2, "capital_relation": relation}),
        ("punctuation:no_comma", {}),
    ])


def answer(rng, kind):
    near = {"json_format": PIECES[30:32] + ["\n"], "quotation": ["\"", "Yes! ", "far"], "two_responses": ["Yes! ", "\n******\n", "******", "far "],
            "number_paragraphs": ["Yes! ", "\n***\n", "***", "far "], "repeat_prompt": PIECES[:2] + ["*", "\n"],
            "nth_paragraph_first_word": ["The ", "'First ", "Yes! ", "\n\n", "river "]}
    pieces = near.get(kind.split(":")[1], PIECES) if rng.random() < 0.7 else PIECES
    return "".join(rng.choice(pieces) for _ in range(rng.randrange(0, 7)))


def main():
    file = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "ifeval.json"
    count, rng = int(sys.argv[2]) if len(sys.argv) > 2 else 360, random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    rows = []
    for _ in range(count):
        kind, kwargs = instruction(rng)
        text = answer(rng, kind)
        example = utils.InputExample(key=0, instruction_id_list=[kind], prompt="", kwargs=[kwargs])
        rows.append([kind, kwargs, text,
                     int(utils.test_instruction_following_strict(example, text).follow_instruction_list[0]),
                     int(utils.test_instruction_following_loose(example, text).follow_instruction_list[0])])
    file.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    followed = sum(row[3] for row in rows)
    print(f"{len(rows)} answers, {followed} followed strictly, {sum(row[4] for row in rows)} loosely")


main()
