// SPDX-License-Identifier: Apache-2.0
// Tokenizer speed in MiB/s on one core: bytes_per_second of the report. Real tokenizers and text
// come from FINETUNE_MATERIAL (default: ../shared/material beside the sources); without them the
// small golden tokenizer encodes this file.

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/file.hpp"
#include "support/folders.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::data {
namespace {

std::filesystem::path material() {
  const char* folder = std::getenv("FINETUNE_MATERIAL");
  if (folder != nullptr && *folder != '\0') return folder;
  return tests::source_folder() / "../shared/material";
}

std::string english() {
  const auto real = material() / "datasets/plain-text/input.txt";
  const auto text = std::filesystem::exists(real)
                        ? real
                        : (tests::source_folder() / "tests/bench/tokenizer_bench.cpp");
  return core::read_text(text, 1 << 30);
}

void encode(benchmark::State& state, const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / "tokenizer.json")) {
    state.SkipWithError("no such tokenizer here");
    return;
  }
  const tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(folder);
  const std::string text = english();
  std::size_t num_ids = 0;
  for (auto ignored : state) {
    const auto ids = tokenizer.encode(text, tokenizer::Encode::document);
    num_ids = ids.size();
    benchmark::DoNotOptimize(ids.data());
  }
  const auto bytes = static_cast<std::int64_t>(text.size());
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["bytes_per_token"] = static_cast<double>(bytes) / static_cast<double>(num_ids);
}

void encode_golden(benchmark::State& state) {
  encode(state, tests::source_folder() / "tests/golden/tokenizers/llama3");
}

void encode_llama3(benchmark::State& state) {
  encode(state, material() / "tokenizers/llama3");
}

void encode_qwen25(benchmark::State& state) {
  encode(state, material() / "tokenizers/qwen2.5");
}

void encode_llama2(benchmark::State& state) {
  encode(state, material() / "tokenizers/llama2");
}

void load_llama3(benchmark::State& state) {
  const auto folder = material() / "tokenizers/llama3";
  if (!std::filesystem::exists(folder)) {
    state.SkipWithError("no such tokenizer here");
    return;
  }
  for (auto ignored : state)
    benchmark::DoNotOptimize(tokenizer::Tokenizer::load(folder));
}

BENCHMARK(encode_golden);
BENCHMARK(encode_llama3);
BENCHMARK(encode_qwen25);
BENCHMARK(encode_llama2);
BENCHMARK(load_llama3)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace finetune::data
