# SPDX-License-Identifier: Apache-2.0
"""Writes mistral_v1.json: conversations as mistral-common encodes them with its "v1" instructions and the SentencePiece
file of ../tokenizers/spm-bpe (or another one).

python make_mistral_v1.py [tokenizer.model] > mistral_v1.json
"""
import json
import os
import shutil
import sys
import tempfile

import mistral_common
from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, UserMessage
from mistral_common.protocol.instruct.normalize import get_normalizer
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.base import TokenizerVersion
from mistral_common.tokens.tokenizers.instruct import InstructTokenizerV1
from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../tokenizers/spm-bpe/tokenizer.model")
KINDS = {"system": SystemMessage, "user": UserMessage, "assistant": AssistantMessage}
TALKS = [
    [("user", "The quick fox"), ("assistant", "jumps over"), ("user", "a dog")],
    [("user", "two  spaces here"), ("assistant", "Der Fuchs")],
    [("system", "Be brief."), ("user", "They'll say"), ("assistant", "we've seen it."), ("user", "don't they?"),
     ("assistant", "1234 times")],
    [("user", "春の花"), ("assistant", "def jump(fox)")],
]

with tempfile.TemporaryDirectory() as scratch:
    path = os.path.join(scratch, "tokenizer.model.v1")
    shutil.copy(MODEL, path)
    instruct = InstructTokenizerV1(SentencePieceTokenizer(path))
    cases = []
    for talk in TALKS:
        request = ChatCompletionRequest(messages=[KINDS[role](content=text) for role, text in talk])
        normal = get_normalizer(TokenizerVersion.v1, None).from_chat_completion_request(request)
        # A conversation that ends with an answer is one to train on.
        ids = instruct.encode_instruct(normal).tokens if talk[-1][0] == "user" else None
        if ids is None:
            ids = [instruct.tokenizer.bos_id]
            for i, message in enumerate(normal.messages):
                if isinstance(message, UserMessage):
                    ids += instruct.encode_user_message(message, None, False, i == 0, normal.system_prompt)[0]
                else:
                    ids += instruct.encode_assistant_message(message, False)
        cases.append({"messages": [{"role": role, "content": text} for role, text in talk], "ids": ids})
rows = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
print('{"by": "mistral-common ' + mistral_common.__version__ + '", "cases": [\n' + rows + "\n]}")
