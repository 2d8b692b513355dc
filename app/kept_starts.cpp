// SPDX-License-Identifier: Apache-2.0
#include "kept_starts.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.hpp"

namespace finetune::app {
namespace {

constexpr const char* key = "keeps_starts";
constexpr std::string_view end_of_a = ".lora_A.weight", end_of_b = ".lora_B.weight";
constexpr std::string_view end_of_start_a = ".lora_A_start.weight";
constexpr std::string_view end_of_start_b = ".lora_B_start.weight";

bool is_b(std::string_view name) {
  return name.ends_with(end_of_b);
}

}  // namespace

bool keeps_starts(const core::Json& config) {
  return config.value(key, false);
}

core::Json without_starts(core::Json config) {
  // The product is scaled as before: alpha / r, or alpha / sqrt(r).
  const double more = config.value("use_rslora", false) ? std::sqrt(2.0) : 2;
  config.erase(key);
  config["init_lora_weights"] = true;
  config["r"] = 2 * config.at("r").get<std::int64_t>();
  config["lora_alpha"] = more * config.at("lora_alpha").get<double>();
  for (auto& [pattern, rank] : config["rank_pattern"].items())
    rank = 2 * rank.get<std::int64_t>();
  for (auto& [pattern, alpha] : config["alpha_pattern"].items())
    alpha = more * alpha.get<double>();
  return config;
}

std::string start_of(std::string_view name) {
  for (const auto& [end, start] :
       {std::pair(end_of_a, end_of_start_a), std::pair(end_of_b, end_of_start_b)})
    if (name.ends_with(end))
      return std::string(name.substr(0, name.size() - end.size())) + std::string(start);
  return "";
}

bool is_start(std::string_view name) {
  return name.ends_with(end_of_start_a) || name.ends_with(end_of_start_b);
}

std::vector<std::int64_t> doubled(std::string_view name, std::vector<std::int64_t> shape) {
  shape.at(is_b(name) ? 1 : 0) *= 2;
  return shape;
}

void read_doubled(const std::string& name, const std::vector<std::int64_t>& shape,
                  std::int64_t first, std::span<float> values, const ReadStored& read) {
  const std::string start = start_of(name);
  core::check(!start.empty() && shape.size() == 2, "A and B are matrices");
  // In turns: all of A; of B a row.
  const std::int64_t size = is_b(name) ? shape[1] : shape[0] * shape[1];
  while (!values.empty()) {
    const std::int64_t turn = first / size, within = first % size;
    const std::int64_t count = std::min(size - within, std::ssize(values));
    const std::span<float> piece = values.first(static_cast<std::size_t>(count));
    const bool is_of_start = turn % 2 == 1;
    read(is_of_start ? start : name, turn / 2 * size + within, piece);
    if (is_of_start && is_b(name))
      for (float& value : piece)
        value = -value;
    values = values.subspan(piece.size());
    first += count;
  }
}

}  // namespace finetune::app
