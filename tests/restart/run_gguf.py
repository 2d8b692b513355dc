# SPDX-License-Identifier: Apache-2.0
"""Greedy text of a GGUF file by llama.cpp: python3 run_gguf.py FILE PROMPT NUM_TOKENS (package llama-cpp-python)."""
import sys

from llama_cpp import Llama

file, prompt, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
model = Llama(file, n_ctx=256, n_threads=1, verbose=False)
tokens = []
for token in model.generate(model.tokenize(prompt.encode(), add_bos=True), temp=0.0, top_k=1, repeat_penalty=1.0):
    if token == model.token_eos() or len(tokens) >= count:
        break
    tokens.append(token)
print(model.detokenize(tokens).decode(), end="")
