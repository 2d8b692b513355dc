// SPDX-License-Identifier: Apache-2.0
// golden_model NAME FOLDER: a model of tests/golden/models with its weights, for scripts.
#include "support/golden_models.hpp"

#include <cstdio>
#include <exception>

int main(int num_words, char** words) {
  if (num_words != 3) {
    std::fputs("usage: golden_model NAME FOLDER\n", stderr);
    return 64;
  }
  try {
    std::filesystem::create_directories(words[2]);
    finetune::tests::write_golden_model(words[1], words[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 74;
  }
  return 0;
}
