// SPDX-License-Identifier: Apache-2.0
#include "model/outputs.hpp"

#include <fmt/format.h>

#include <bit>

#include "core/error.hpp"
#include "model/config_json.hpp"

namespace finetune::model {
namespace {

constexpr std::string_view causal = "ForCausalLM";
constexpr std::string_view classification = "ForSequenceClassification";

std::string architecture_of(const core::Json& config) {
  const auto found = config.find("architectures");
  const bool is_list = found != config.end() && found->is_array() && !found->empty();
  return is_list && found->front().is_string() ? found->front().get<std::string>() : std::string();
}

std::int64_t count_labels(const core::Json& config, const std::string& where) {
  constexpr std::int64_t usual = 2, most = 100'000;
  const auto names = config.find("id2label");
  const std::int64_t num = names != config.end() && names->is_object() && !names->empty()
                               ? std::ssize(*names)
                               : ConfigReader(config, where).size("num_labels", usual);
  if (num > most)
    ConfigReader(config, where)
        .fail("id2label", fmt::format("names {} labels", num), "no more than 100,000 are counted");
  return num;
}

}  // namespace

bool says_classification(const core::Json& config) {
  return architecture_of(config).ends_with(classification);
}

Outputs read_outputs(const core::Json& config, const std::string& where) {
  if (!says_classification(config)) return {};
  const std::int64_t num = count_labels(config, where);
  const core::Json type = config.value("problem_type", core::Json());
  HeadKind kind = num == 1 ? HeadKind::value : HeadKind::one_label;
  if (!type.is_null()) {
    const std::string text = type.is_string() ? type.get<std::string>() : type.dump();
    bool is_known = false;
    for (const HeadKind one : {HeadKind::one_label, HeadKind::labels, HeadKind::value}) {
      if (text != problem_type(one)) continue;
      kind = one;
      is_known = true;
    }
    if (!is_known)
      ConfigReader(config, where)
          .fail("problem_type", "is " + type.dump(),
                "known: single_label_classification, multi_label_classification, regression");
  }
  if (kind == HeadKind::value && num != 1)
    ConfigReader(config, where)
        .fail_unsupported("id2label", fmt::format("names {} outputs of a regression", num),
                          "one number is learnt");
  if (kind == HeadKind::labels && num > most_flags)
    ConfigReader(config, where)
        .fail_unsupported("id2label",
                          fmt::format("names {} labels of which each is right or not", num),
                          fmt::format("no more than {} are", most_flags));
  return {kind, num};
}

core::Json describe_outputs(const core::Json& config, HeadKind kind,
                            const std::vector<std::string>& labels) {
  core::Json by_id = core::Json::object(), by_name = core::Json::object();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    by_id[std::to_string(i)] = labels[i];
    by_name[labels[i]] = i;
  }
  std::string architecture = architecture_of(config);
  if (architecture.ends_with(causal)) {
    architecture.resize(architecture.size() - causal.size());
    architecture += classification;
  }
  // AutoModelForSequenceClassification goes by model_type; the ending is what is read here.
  if (!architecture.ends_with(classification)) architecture = classification;
  return {{"architectures", {architecture}},
          // Transformers has no word for rewards: their number is that of a regression.
          {"problem_type", problem_type(kind == HeadKind::reward ? HeadKind::value : kind)},
          {"id2label", by_id},
          {"label2id", by_name}};
}

std::vector<std::string> label_names(const core::Json& config) {
  std::vector<std::string> names;
  const core::Json by_id = config.value("id2label", core::Json());
  for (std::size_t i = 0; by_id.is_object() && by_id.contains(std::to_string(i)); ++i) {
    const core::Json& name = by_id.at(std::to_string(i));
    names.push_back(name.is_string() ? name.get<std::string>() : name.dump());
  }
  return names;
}

std::string problem_type(HeadKind kind) {
  switch (kind) {
    case HeadKind::next_token:
      return "causal_lm";
    case HeadKind::one_label:
      return "single_label_classification";
    case HeadKind::labels:
      return "multi_label_classification";
    case HeadKind::value:
      return "regression";
    case HeadKind::reward:
      return "reward";
  }
  return "";
}

std::int64_t num_label_codes(const Outputs& outputs) {
  return outputs.kind == HeadKind::one_label ? outputs.num
         : outputs.kind == HeadKind::labels  ? std::int64_t{1} << outputs.num
         : outputs.kind == HeadKind::reward  ? 2
                                             : std::int64_t{1} << 31;
}

std::int32_t code_of_value(float value) {
  return static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value) >> 1);
}

float value_of_code(std::int64_t code) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 1);
}

}  // namespace finetune::model
