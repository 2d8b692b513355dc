// SPDX-License-Identifier: Apache-2.0
// Of config.json: positions.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/config_json.hpp"

namespace finetune::model {
namespace {

/// What turned queries and keys are multiplied by for so much longer contexts.
double yarn_amplitude(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

void read_yarn(const ConfigReader& rope, const Architecture& architecture, RopeScaling& scaling) {
  scaling.kind = RopeScaling::Kind::yarn;
  std::optional<std::int64_t> original;
  if (architecture.max_positions > 0) original = architecture.max_positions;
  scaling.original_max_positions = rope.size("original_max_position_embeddings", original);
  scaling.beta_fast = rope.real("beta_fast", scaling.beta_fast);
  scaling.beta_slow = rope.real("beta_slow", scaling.beta_slow);
  scaling.is_truncated = rope.boolean("truncate", true);
  const double scale = rope.real("mscale", 0), of_all = rope.real("mscale_all_dim", 0);
  const bool has_scales = scale != 0 && of_all != 0;
  scaling.amplitude =
      rope.real("attention_factor", yarn_amplitude(scaling.factor, has_scales ? scale : 1) /
                                        yarn_amplitude(scaling.factor, has_scales ? of_all : 0));
  const double of_scores = of_all != 0 ? yarn_amplitude(scaling.factor, of_all) : 1;
  scaling.score_scale = of_scores * of_scores;
  if (scaling.beta_slow <= 0)
    rope.fail("beta_slow", "is not positive", "it counts turns of a pair of channels");
  if (scaling.beta_fast < scaling.beta_slow)
    rope.fail("beta_fast", "is below beta_slow", "the frequencies between are blended");
  if (!(scaling.amplitude > 0))
    rope.fail("attention_factor", "is not positive", "queries and keys are multiplied by it");
  if (architecture.rope_theta <= 1)
    rope.fail("rope_theta", "is not above 1", "yarn goes by how fast frequencies fall");
}

/// A factor for each pair of channels, one list up to the original context and one beyond. The
/// second is not computed: which of them it is would depend on who shares a micro-batch.
void read_longrope(const ConfigReader& config, const ConfigReader& rope, Architecture& a) {
  RopeScaling& scaling = a.rope_scaling;
  scaling.kind = RopeScaling::Kind::longrope;
  scaling.factors = rope.reals("short_factor");
  if (std::ssize(scaling.factors) != a.turned_channels() / 2)
    rope.fail("short_factor", fmt::format("has not {} numbers", a.turned_channels() / 2),
              "each pair of channels that turns has its own");
  if (std::ranges::any_of(scaling.factors, [](double factor) { return !(factor > 0); }))
    rope.fail("short_factor", "holds a number that is not positive", "angles are divided by it");
  const char* key = "original_max_position_embeddings";
  const std::int64_t original = rope.has(key) ? rope.size(key) : config.size(key, a.max_positions);
  const double factor =
      rope.real("factor", static_cast<double>(a.max_positions) / static_cast<double>(original));
  scaling.amplitude = rope.real(
      "attention_factor",
      factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original))));
  if (!(scaling.amplitude > 0))
    rope.fail("attention_factor", "is not positive", "queries and keys are multiplied by it");
  a.max_positions = std::min(a.max_positions, original);
}

void read_turned_channels(const ConfigReader& reader, Architecture& a) {
  if (!reader.has("partial_rotary_factor")) return;
  const double part = reader.real("partial_rotary_factor");
  a.rotary_size = static_cast<std::int64_t>(static_cast<double>(a.head_size) * part);
  if (!(part > 0 && part <= 1) || a.rotary_size < 2 || a.rotary_size % 2 != 0)
    reader.fail("partial_rotary_factor", fmt::format("is {}", part),
                "that part of a head's channels turns, in pairs");
}

}  // namespace

void read_window_rope(const ConfigReader& config, Architecture& architecture) {
  Architecture other = architecture;
  other.rope_scaling = {};
  other.head_size = architecture.window_head_size();
  const char* key = "rope_parameters";
  if (config.has(key)) {
    const core::Json& all = config.object().at(key);
    if (!all.is_object() || !all.contains("full_attention") || !all.contains("sliding_attention"))
      return;
    const core::Json of_windows = {{key, all.at("sliding_attention")}};
    read_rope(ConfigReader(of_windows, config.where()), other);
  }
  const bool differs = other.rope_theta != architecture.rope_theta ||
                       other.rope_scaling.kind != RopeScaling::Kind::none ||
                       architecture.rope_scaling.kind != RopeScaling::Kind::none;
  if (differs) architecture.window_positions = other.positions();
}

void read_rope(const ConfigReader& config, Architecture& architecture) {
  const bool new_style = config.has("rope_parameters");
  const char* key = new_style ? "rope_parameters" : "rope_scaling";
  const auto base = [](const ConfigReader& reader, double fallback) {
    const double theta = reader.real("rope_theta", fallback);
    if (theta <= 0) reader.fail("rope_theta", "is not positive", "angles are powers of it");
    return theta;
  };
  architecture.rope_theta = base(config, architecture.rope_theta);
  read_turned_channels(config, architecture);
  if (!config.has(key)) return;
  const core::Json& all = config.object().at(key);
  const bool by_layers = all.is_object() && all.contains("full_attention");
  const ConfigReader rope(by_layers ? all.at("full_attention") : all, config.where() + ": " + key);
  if (!rope.object().is_object())
    config.fail(key, "is " + rope.object().dump(), "an object is expected");
  if (new_style) architecture.rope_theta = base(rope, architecture.rope_theta);
  if (new_style) read_turned_channels(rope, architecture);

  RopeScaling& scaling = architecture.rope_scaling;
  const std::string kind = rope.text("rope_type", rope.text("type", "default"));
  // "mrope" tells apart what pictures show; of a text all three positions are the same.
  if (kind == "default" || kind == "mrope") return;
  if (kind == "proportional") {
    scaling.kind = RopeScaling::Kind::proportional;
    scaling.turned_part = rope.real("partial_rotary_factor", 1);
    scaling.factor = rope.real("factor", 1);
    if (scaling.factor <= 0) rope.fail("factor", "is not positive", "positions are divided by it");
    architecture.rotary_size = 0;
    return;
  }
  if (kind == "longrope" || kind == "su") return read_longrope(config, rope, architecture);
  scaling.factor = rope.real("factor");
  if (scaling.factor <= 0) rope.fail("factor", "is not positive", "positions are divided by it");
  if (kind == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
  } else if (kind == "llama3") {
    scaling.kind = RopeScaling::Kind::llama3;
    scaling.low_freq_factor = rope.real("low_freq_factor");
    scaling.high_freq_factor = rope.real("high_freq_factor");
    scaling.original_max_positions = rope.size("original_max_position_embeddings");
  } else if (kind == "yarn") {
    read_yarn(rope, architecture, scaling);
  } else if (kind != "dynamic") {  // which stretches positions beyond the last one alone
    rope.fail_unsupported("rope_type", fmt::format("is \"{}\"", kind),
                          "known: default, linear, dynamic, llama3, yarn, longrope, proportional");
  }
  if (scaling.kind == RopeScaling::Kind::llama3 &&
      scaling.high_freq_factor < scaling.low_freq_factor) {
    rope.fail("high_freq_factor", "is below low_freq_factor",
              "the frequencies between are blended");
  }
}

}  // namespace finetune::model
