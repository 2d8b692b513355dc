// SPDX-License-Identifier: Apache-2.0
#include "serving.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace finetune::app {
namespace {

/// A list or text with something in it, or true.
bool says_something(const core::Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  return !value.is_null() && !value.empty();
}

/// Of the whole adapter and of those of its modules that have another.
std::int64_t largest_rank(const core::Json& config) {
  std::int64_t rank = config.value("r", std::int64_t{0});
  const core::Json patterns = config.value("rank_pattern", core::Json());
  if (patterns.is_object())
    for (const core::Json& other : patterns)
      if (other.is_number_integer()) rank = std::max(rank, other.get<std::int64_t>());
  return rank;
}

}  // namespace

std::vector<std::string> vllm_notes(const core::Json& config) {
  constexpr std::int64_t usual_rank = 16, largest = 512;
  std::vector<std::string> notes;
  const auto value = [&](const char* key) { return config.value(key, core::Json()); };
  if (value("peft_type") != "LORA") {
    notes.push_back(fmt::format("vLLM reads adapters of the type LORA, not {}: export with --merge",
                                value("peft_type").dump()));
    return notes;
  }
  if (says_something(value("use_dora")))
    notes.emplace_back("vLLM reads no DoRA: export with --merge");
  if (says_something(value("modules_to_save")))
    notes.push_back(
        fmt::format("vLLM reads no adapter with modules_to_save ({}): export with "
                    "--merge",
                    value("modules_to_save").dump()));
  for (const char* key : {"rank_pattern", "alpha_pattern"})
    if (says_something(value(key)))
      notes.push_back(
          fmt::format("vLLM scales all modules alike, and takes no notice of {}: export "
                      "with --merge",
                      key));
  const std::int64_t rank = largest_rank(config);
  if (rank > largest)
    notes.push_back(fmt::format("vLLM reads ranks up to {}, this one is {}: export with --merge",
                                largest, rank));
  else if (rank > usual_rank)
    notes.push_back(
        fmt::format("vLLM needs --max-lora-rank {} or more (its default is {})", rank, usual_rank));
  return notes;
}

}  // namespace finetune::app
