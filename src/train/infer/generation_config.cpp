// SPDX-License-Identifier: Apache-2.0
#include "train/infer/generation_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "core/python_json.hpp"
#include "data/text/end_tokens.hpp"

namespace finetune::train {
namespace {

constexpr const char* file_name = "generation_config.json";

[[noreturn]] void refuse_value(const std::string& where, const char* key, const core::Json& given,
                               const std::string& expected) {
  core::fail(core::ErrorKind::input, {where, fmt::format("\"{}\" is {}", key, given.dump()),
                                      expected + " is expected", "Correct it."});
}

bool is_given(const core::Json& object, const char* key) {
  return object.contains(key) && !object.at(key).is_null();
}

/// The values of the file that no command speaks of, by name.
class Taken {
 public:
  template <typename T>
  void operator()(const char* name, const std::optional<T>& said, std::optional<T>& of_file) {
    if (said || !of_file)
      of_file = said;
    else
      names_.push_back(fmt::format("{} {}", name, *of_file));
  }
  bool is_empty() const { return names_.empty(); }
  std::string text() const { return fmt::format("{}", fmt::join(names_, ", ")); }

 private:
  std::vector<std::string> names_;
};

}  // namespace

std::optional<double> read_number(const core::Json& object, const char* key, double low,
                                  double high, const std::string& where) {
  if (!is_given(object, key)) return std::nullopt;
  const core::Json& given = object.at(key);
  if (!given.is_number() || given.get<double>() < low || given.get<double>() > high)
    refuse_value(where, key, given, fmt::format("a number from {} to {}", low, high));
  return given.get<double>();
}

SamplingValues read_sampling(const core::Json& object, const std::string& where) {
  SamplingValues values;
  values.temperature = read_number(object, "temperature", 0, 100, where);
  if (const auto top_k = read_number(object, "top_k", 0, 1e9, where))
    values.top_k = static_cast<std::int64_t>(*top_k);
  values.top_p = read_number(object, "top_p", 0, 1, where);
  values.min_p = read_number(object, "min_p", 0, 1, where);
  values.repetition_penalty = read_number(object, "repetition_penalty", 1e-3, 1e3, where);
  return values;
}

void apply(const SamplingValues& said, Sampling& sampling) {
  sampling.temperature = said.temperature.value_or(sampling.temperature);
  sampling.top_k = said.top_k.value_or(sampling.top_k);
  sampling.top_p = said.top_p.value_or(sampling.top_p);
  sampling.min_p = said.min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = said.repetition_penalty.value_or(sampling.repetition_penalty);
}

GenerationConfig read_generation_config(const std::filesystem::path& model_folder) {
  const std::filesystem::path file = model_folder / file_name;
  GenerationConfig config;
  if (!std::filesystem::exists(file)) return config;
  const core::Json object = core::read_python_json(file, core::largest_config_bytes);
  if (!object.is_object())
    core::fail(core::ErrorKind::input, {file.string(), "is no JSON object",
                                        "it says how texts are chosen", "Correct or remove it."});
  if (is_given(object, "do_sample")) {
    if (!object.at("do_sample").is_boolean())
      refuse_value(file.string(), "do_sample", object.at("do_sample"), "true or false");
    config.samples = object.at("do_sample").get<bool>();
  }
  config.values = read_sampling(object, file.string());
  config.end_ids = data::end_ids_in(object, file.string());
  return config;
}

ChosenSampling choose_sampling(const SamplingValues& said, const GenerationConfig& config) {
  SamplingValues values = config.values;
  const bool is_greedy = !config.samples.value_or(false);
  if (is_greedy) values = {.repetition_penalty = values.repetition_penalty};
  if (!is_greedy && !values.temperature) values.temperature = 1;
  Taken taken;
  taken("temperature", said.temperature, values.temperature);
  // Whoever asks for the likeliest token has no use for the rest.
  if (said.temperature == 0.0) values.top_k = values.top_p = values.min_p = {};
  taken("top-k", said.top_k, values.top_k);
  taken("top-p", said.top_p, values.top_p);
  taken("min-p", said.min_p, values.min_p);
  taken("repetition penalty", said.repetition_penalty, values.repetition_penalty);
  ChosenSampling chosen;
  apply(values, chosen.sampling);
  chosen.sampling.stop = config.end_ids;
  if (!taken.is_empty())
    chosen.note = fmt::format(
        "tokens are chosen as the model's {} says: {}{}", file_name, taken.text(),
        chosen.sampling.temperature > 0 ? "; --temperature 0 takes the likeliest ones" : "");
  else if (config.samples == false && !said.temperature)
    chosen.note = fmt::format(
        "the likeliest tokens are taken, as the model's {} says; --temperature samples", file_name);
  return chosen;
}

}  // namespace finetune::train
