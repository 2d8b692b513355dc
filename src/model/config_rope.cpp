// SPDX-License-Identifier: Apache-2.0
// Of config.json: positions.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "model/config_json.hpp"

namespace finetune::model {
namespace {

/// What turned queries and keys are multiplied by for so much longer contexts.
double yarn_amplitude(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

constexpr const char* new_key = "rope_parameters";
constexpr const char* old_key = "rope_scaling";
constexpr const char* original_key = "original_max_position_embeddings";
constexpr const char* most_key = "max_position_embeddings";
constexpr const char* part_key = "partial_rotary_factor";

/// What rope_parameters or rope_scaling says: programs of today take the one for the other.
struct RopeObject {
  core::Json object;        ///< empty where nothing is said
  std::string where;        ///< of messages
  bool is_of_kind = false;  ///< of layers that see everything: others have their own
};

RopeObject find_rope(const ConfigReader& config) {
  const auto is_told = [&](const char* key) {
    return config.has(key) && config.object().at(key) != core::Json::object();
  };
  const bool is_new = is_told(new_key), is_old = is_told(old_key);
  if (is_new && is_old && config.object().at(new_key) != config.object().at(old_key))
    core::fail(core::ErrorKind::input,
               {config.where(), fmt::format("\"{}\" and \"{}\" differ", old_key, new_key),
                "programs take either the one or the other, and leave out what that one lacks",
                "Keep one of them that says all, with its rope_theta."});
  const char* key = is_new ? new_key : old_key;
  RopeObject rope{core::Json::object(), config.where() + ": " + key};
  if (!is_new && !is_old) return rope;
  rope.object = config.object().at(key);
  if (!rope.object.is_object())
    config.fail(key, "is " + rope.object.dump(), "an object is expected");
  rope.is_of_kind =
      rope.object.contains("full_attention") || rope.object.contains("sliding_attention");
  if (rope.is_of_kind) rope.object = rope.object.value("full_attention", core::Json());
  if (rope.object.is_null()) rope.object = core::Json::object();
  if (!rope.object.is_object())
    config.fail(key, "holds " + rope.object.dump(),
                "an object for each kind of layers is expected");
  return rope;
}

/// The configuration's own word counts before that of its rope_parameters, as in transformers.
std::int64_t read_original(const ConfigReader& config, const ConfigReader& rope,
                           const Architecture& architecture) {
  if (config.has(original_key)) return config.size(original_key);
  if (config.has(most_key)) return rope.size(original_key, architecture.max_positions);
  return rope.size(original_key);
}

void read_yarn(const ConfigReader& rope, const Architecture& architecture, RopeScaling& scaling) {
  scaling.kind = RopeScaling::Kind::yarn;
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
  const std::int64_t original = read_original(config, rope, a);
  const double factor =
      rope.real("factor", static_cast<double>(a.max_positions) / static_cast<double>(original));
  scaling.amplitude = rope.real(
      "attention_factor",
      factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original))));
  if (!(scaling.amplitude > 0))
    rope.fail("attention_factor", "is not positive", "queries and keys are multiplied by it");
  a.max_positions = std::min(a.max_positions, original);
}

void read_turned_channels(const ConfigReader& reader, std::optional<double> unsaid,
                          Architecture& a) {
  // As null beside rope_parameters it hides the family's own.
  const double of_family = reader.names(part_key) ? 1 : unsaid.value_or(1);
  const double part = reader.real(part_key, of_family);
  if (!unsaid && part != 1)
    reader.fail_unsupported(part_key, fmt::format("is {}", part),
                            "all channels of a head turn in this family; some programs read this "
                            "key there, and transformers does not");
  if (part == 1) return;
  a.rotary_size = static_cast<std::int64_t>(static_cast<double>(a.head_size) * part);
  if (!(part > 0 && part <= 1) || a.rotary_size < 2 || a.rotary_size % 2 != 0)
    reader.fail(part_key, fmt::format("is {}", part),
                "that part of a head's channels turns, in pairs");
}

/// Pairs of channels behind some first ones do not turn.
void read_proportional(const ConfigReader& rope, Architecture& a) {
  RopeScaling& scaling = a.rope_scaling;
  scaling.kind = RopeScaling::Kind::proportional;
  scaling.turned_part = rope.real(part_key, 1);
  scaling.factor = rope.real("factor", 1);
  if (scaling.factor <= 0) rope.fail("factor", "is not positive", "positions are divided by it");
  a.rotary_size = 0;
}

void read_llama3(const ConfigReader& rope, RopeScaling& scaling) {
  scaling.kind = RopeScaling::Kind::llama3;
  scaling.low_freq_factor = rope.real("low_freq_factor");
  scaling.high_freq_factor = rope.real("high_freq_factor");
  if (scaling.high_freq_factor < scaling.low_freq_factor)
    rope.fail("high_freq_factor", "is below low_freq_factor",
              "the frequencies between are blended");
}

}  // namespace

void read_window_rope(const ConfigReader& config, double theta, Architecture& architecture) {
  Architecture other = architecture;
  other.rope_theta = theta;
  other.rope_scaling = {};
  other.head_size = architecture.window_head_size();
  if (config.has(new_key)) {
    const core::Json& all = config.object().at(new_key);
    const char* kind = "sliding_attention";
    if (!all.is_object() || !(all.contains(kind) || all.contains("full_attention")))
      config.fail(new_key, "has neither \"full_attention\" nor \"sliding_attention\"",
                  "each kind of layers has positions of its own");
    core::Json of_windows = {{new_key, all.value(kind, core::Json())}};
    if (config.has(most_key)) of_windows[most_key] = config.object().at(most_key);
    read_rope(ConfigReader(of_windows, config.where()), other, 1);
  }
  const bool differs = other.rope_theta != architecture.rope_theta ||
                       other.rope_scaling.kind != RopeScaling::Kind::none ||
                       architecture.rope_scaling.kind != RopeScaling::Kind::none;
  if (differs) architecture.window_positions = other.positions();
}

void read_rope(const ConfigReader& config, Architecture& architecture,
               std::optional<double> turned_part) {
  const RopeObject found = find_rope(config);
  const ConfigReader rope(found.object, found.where);
  for (const ConfigReader* reader : {&config, &rope}) {
    architecture.rope_theta = reader->real("rope_theta", architecture.rope_theta);
    if (architecture.rope_theta <= 0)
      reader->fail("rope_theta", "is not positive", "angles are powers of it");
  }
  const std::string kind = rope.text("rope_type", rope.text("type", "default"));
  if (kind == "proportional") return read_proportional(rope, architecture);
  read_turned_channels(rope.has(part_key) ? rope : config, turned_part, architecture);

  RopeScaling& scaling = architecture.rope_scaling;
  // "mrope" tells apart what pictures show; of a text all three positions are the same.
  if (kind == "default" || kind == "mrope") return;
  core::Json beside = config.object();
  if (found.is_of_kind) beside.erase(original_key);
  const ConfigReader own(beside, config.where());
  if (kind == "longrope" || kind == "su") return read_longrope(own, rope, architecture);
  scaling.factor = rope.real("factor");
  if (scaling.factor <= 0) rope.fail("factor", "is not positive", "positions are divided by it");
  if (kind == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
  } else if (kind == "llama3") {
    read_llama3(rope, scaling);
    scaling.original_max_positions = read_original(own, rope, architecture);
  } else if (kind == "yarn") {
    scaling.original_max_positions = read_original(own, rope, architecture);
    read_yarn(rope, architecture, scaling);
  } else if (kind != "dynamic") {  // which stretches positions beyond the last one alone
    rope.fail_unsupported("rope_type", fmt::format("is \"{}\"", kind),
                          "known: default, linear, dynamic, llama3, yarn, longrope, proportional");
  }
}

core::Json with_rope(const core::Json& config, const core::Json& unsaid) {
  const ConfigReader reader(config, "");
  core::Json whole = config;
  const bool is_told =
      reader.has(new_key) || (reader.has(old_key) && config.at(old_key) != core::Json::object());
  if (!is_told) whole[new_key] = unsaid;
  return whole;
}

}  // namespace finetune::model
