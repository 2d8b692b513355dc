// SPDX-License-Identifier: Apache-2.0
// config.json in random variants of each family: what is read is what transformers builds, or the
// key that stands in the way is named. tests/golden/config/make_built.py records what it builds.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "model/family.hpp"
#include "model/rope.hpp"
#include "registry.hpp"
#include "support/folders.hpp"

namespace finetune::built_test {
namespace {

using core::Json;
using model::Architecture;

/// As make_built.py draws.
std::size_t draw(const std::string& names, std::size_t size) {
  std::uint64_t state = 0xCBF29CE484222325;
  for (const char byte : names)
    state = (state ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
  state = (state ^ (state >> 32)) * 0x9E3779B97F4A7C15;
  return static_cast<std::size_t>((state >> 32) % size);
}

/// Objects are merged, all else is replaced.
void patch(Json& config, const Json& patches) {
  for (const auto& [key, value] : patches.items()) {
    if (value.is_object() && config.contains(key) && config[key].is_object())
      patch(config[key], value);
    else
      config[key] = value;
  }
}

Json variant_of(const Json& described, const std::string& family, std::size_t variant) {
  const Json& of_family = described["families"][family];
  std::size_t drawn = 0;
  const auto choose = [&](Json& config, const Json& choices) {
    for (const Json& choice : choices) {
      const Json& all =
          choice.is_string() ? described["choices"][choice.get<std::string>()] : choice;
      const std::string names =
          fmt::format("{}/{}/{}/{}", described["seed"].get<int>(), family, variant, drawn++);
      patch(config, all[draw(names, all.size())]);
    }
  };
  const bool sees = of_family.contains("text");
  const Json& named = sees ? of_family["text"] : of_family;
  const Json& text = named.is_string() ? described["families"][named.get<std::string>()] : named;
  Json config = described["base"];
  patch(config, text["base"]);
  choose(config, text["choices"]);
  if (!sees) return config;
  Json whole = of_family["base"];
  whole["text_config"] = std::move(config);
  choose(whole, of_family["choices"]);
  return whole;
}

/// The facts of a variant in make_built.py's numbers; nothing where transformers builds none.
std::optional<Json> built_facts(const Json& of_family, std::size_t variant) {
  constexpr std::size_t base = 36;
  Json facts;
  for (const auto& [fact, all] : of_family.items()) {
    const std::size_t width = all["values"].size() <= base ? 1 : 2;
    const std::string digits = all["of"].get<std::string>().substr(width * variant, width);
    if (digits.empty()) throw std::runtime_error(fact + " has too few variants");
    if (digits[0] == '-') return std::nullopt;
    facts[fact] = all["values"][std::stoul(digits, nullptr, base)];
  }
  return facts;
}

Json rope_of(const model::Positions& positions, std::int64_t channels) {
  double sum = 0, sum_of_logs = 0;
  for (const float frequency : model::rope_frequencies(positions, channels)) {
    sum += frequency;
    if (frequency > 0) sum_of_logs += std::log(static_cast<double>(frequency));
  }
  return {channels, positions.scaling.amplitude, sum, sum_of_logs};
}

std::string layers_of(const Architecture& a) {
  std::vector<std::string> all;
  for (std::int64_t i = 0; i < a.num_layers; ++i) {
    const model::Layer layer = a.layer(i);
    if (layer.remembers() || !layer.has_attention_half) continue;  // layers that attend are listed
    std::string kind = layer.window > 0  ? fmt::format("s{}", layer.window)
                       : layer.chunk > 0 ? fmt::format("c{}", layer.chunk)
                                         : "f";
    if (layer.rotary == model::Rotary::none && !a.learns_positions) kind += 'n';
    all.push_back(kind);
  }
  return fmt::format("{}", fmt::join(all, ","));
}

double activated(model::Activation::Function function, double x) {
  using enum model::Activation::Function;
  switch (function) {
    case silu:
      return x / (1 + std::exp(-x));
    case gelu:
      return x * (1 + std::erf(x / std::sqrt(2.0))) / 2;
    case gelu_tanh:
      return x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2;
    case relu_squared:
      return x > 0 ? x * x : 0;
    default:
      return NAN;
  }
}

Json facts_of(const model::Identified& identified) {
  const Architecture& a = identified.architecture;
  std::int64_t parameters = 0;
  for (const model::Parameter& row : identified.family->describe(a).rows)
    parameters += row.count();
  const bool slides = a.window_positions.has_value();
  const std::int64_t channels = a.turned_channels();
  const std::int64_t of_windows = a.rotary_size > 0 ? channels : a.window_head_size();
  const auto function = a.activation.function;
  Json window_rope = rope_of(slides ? *a.window_positions : a.positions(), of_windows);
  // Heads of another size are divided by its root.
  if (a.window_head_size() != a.head_size)
    window_rope[1] =
        window_rope[1].get<double>() *
        std::pow(static_cast<double>(a.head_size) / static_cast<double>(a.window_head_size()),
                 0.25);
  const double of_latents = a.latents.exist() ? a.rope_scaling.score_scale : 1;
  Json experts = Json::array();
  if (a.experts.num > 0) experts = {a.experts.num, a.experts.top_k, a.experts.normalizes ? 1 : 0};
  return {{"rope", rope_of(a.positions(), channels)},
          {"window_rope", window_rope},
          {"layers", layers_of(a)},
          {"tied", a.tied_embeddings ? 1 : 0},
          {"norm_eps", a.norm_eps},
          {"score_scale", of_latents / std::sqrt(a.query_size())},
          {"score_cap", a.score_softcap},
          {"logits", {a.head_scale, a.logit_softcap}},
          {"embedding", a.embedding_scale},
          {"residual", a.residual_scale},
          {"act", {activated(function, 0.7), activated(function, -1.3)}},
          {"experts", experts},
          {"parameters", parameters}};
}

bool is_near(double left, double right) {
  return std::abs(left - right) <= 2e-4 * std::max(std::abs(left), std::abs(right)) + 1e-12;
}

bool is_near(const Json& left, const Json& right) {
  if (left.is_array() && right.is_array()) {
    for (std::size_t i = 0; i < left.size() && left.size() == right.size(); ++i)
      if (!is_near(left[i], right[i])) return false;
    return left.size() == right.size();
  }
  return left.is_number() && right.is_number() ? is_near(left.get<double>(), right.get<double>())
                                               : left == right;
}

/// What all layers that turn read their angles from.
bool has_turning(const Architecture& a, bool is_window) {
  for (std::int64_t i = 0; i < a.num_layers; ++i)
    if (a.layer(i).rotary != model::Rotary::none && (a.layer(i).window > 0) == is_window)
      return true;
  return false;
}

/// The facts that differ, each with both values.
std::vector<std::string> differences(const Architecture& a, Json ours, Json theirs) {
  // Of heads that turn whole, half of what scales scores may be the queries' and keys' own.
  const bool is_whole = a.rotary_size == 0 || a.rotary_size == a.query_size();
  for (Json* facts : {&ours, &theirs}) {
    for (const char* key : {"rope", "window_rope"}) {
      const bool is_window = std::string_view(key) == "window_rope";
      if (!has_turning(a, is_window)) {
        (*facts)[key] = nullptr;
        continue;
      }
      const double amplitude = (*facts)[key][1].get<double>();
      if (!is_whole) continue;
      (*facts)[fmt::format("{}_scores", key)] =
          (*facts)["score_scale"].get<double>() * amplitude * amplitude;
      (*facts)[key][1] = 1;
    }
    if (is_whole) (*facts)["score_scale"] = nullptr;
    if ((*facts)["act"].is_null()) ours["act"] = nullptr;
    // Not every family lets its configuration say whether weights of experts sum to 1.
    const Json& experts = theirs["experts"];
    if (experts.size() == 3 && experts[2] == -1) ours["experts"][2] = -1;
  }
  std::vector<std::string> all;
  for (const auto& [fact, value] : ours.items())
    if (!is_near(value, theirs[fact]))
      all.push_back(fmt::format("{}: {}, not {}", fact, value.dump(), theirs[fact].dump()));
  return all;
}

bool names_a_key(const std::string& message, const Json& config) {
  if (message.find("\" is missing") != std::string::npos) return true;
  for (const auto& [key, value] : config.items())
    if (message.find('"' + key + '"') != std::string::npos ||
        (value.is_object() && names_a_key(message, value)))
      return true;
  return false;
}

/// Of 200: many name one thing in two ways, and are refused.
constexpr int least_alike = 40;

class BuiltConfigs : public testing::TestWithParam<std::string> {};

TEST_P(BuiltConfigs, AreReadAsTransformersBuildsThemOrRefusedByName) {
  const auto folder = tests::source_folder() / "tests/golden/config";
  const Json described = core::read_json(folder / "variants.json", 1 << 20);
  const Json golden = core::read_json(folder / "built.json", 1 << 20);
  ASSERT_EQ(golden["seed"], described["seed"]) << "make_built.py makes built.json";
  const Json& of_family = golden["families"][GetParam()];
  ASSERT_FALSE(of_family.is_null()) << "make_built.py " << GetParam();
  int num_alike = 0, num_refused = 0;
  for (std::size_t i = 0; i < described["variants"].get<std::size_t>(); ++i) {
    const Json config = variant_of(described, GetParam(), i);
    try {
      const auto identified =
          model::identify(config.dump(), "config.json", modules::registry().families);
      const auto facts = built_facts(of_family, i);
      if (!facts) continue;  // there are no numbers to be alike
      const auto differing = differences(identified.architecture, facts_of(identified), *facts);
      EXPECT_TRUE(differing.empty()) << i << ": " << fmt::format("{}", fmt::join(differing, "; "))
                                     << "\n  of " << config.dump();
      num_alike += differing.empty() ? 1 : 0;
    } catch (const core::Error& error) {
      EXPECT_TRUE(names_a_key(error.what(), config)) << i << ": " << error.what();
      ++num_refused;
    }
  }
  fmt::print("{}: {} alike, {} refused\n", GetParam(), num_alike, num_refused);
  EXPECT_GE(num_alike, least_alike) << "too much of what transformers builds is refused";
}

std::vector<std::string> families() {
  std::vector<std::string> all;
  const Json described =
      core::read_json(tests::source_folder() / "tests/golden/config/variants.json", 1 << 20);
  for (const auto& [family, described_of] : described["families"].items())
    all.push_back(family);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Families, BuiltConfigs, testing::ValuesIn(families()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace finetune::built_test
