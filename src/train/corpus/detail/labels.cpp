// SPDX-License-Identifier: Apache-2.0
#include "train/corpus/detail/labels.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::train {
namespace {

using model::HeadKind;
using Names = std::vector<std::string>;

[[noreturn]] void refuse(const std::string& where, const core::Json& label, const std::string& why,
                         const char* remedy) {
  const std::string text = label.dump(-1, ' ', false, core::Json::error_handler_t::replace);
  core::fail(core::ErrorKind::input,
             {where, fmt::format("has the label {}", core::one_line(text)), why, remedy});
}

/// Of a text that is no name the number that it writes: tables of text have no others.
core::Json read_label(const core::Json& label, const Names& names) {
  if (!label.is_string() || std::ranges::find(names, label.get<std::string>()) != names.end())
    return label;
  const core::Json number = core::Json::parse(label.get<std::string>(), nullptr, false);
  return number.is_number() ? number : label;
}

std::int32_t number_of(const core::Json& label, const Names& names, const std::string& where) {
  if (label.is_string()) {
    const auto found = std::ranges::find(names, label.get<std::string>());
    if (found != names.end()) return static_cast<std::int32_t>(found - names.begin());
  }
  if (label.is_number_integer() && label >= 0 && label < names.size())
    return label.get<std::int32_t>();
  refuse(where, label, fmt::format("model.labels are {}", fmt::join(names, ", ")),
         "Correct it, or name all labels there: a label is a name, or its place from 0.");
}

std::int32_t flags_of(const core::Json& label, const Names& names, const std::string& where) {
  if (!label.is_array())
    refuse(where, label, "several labels may be right: they are a list", "Write a list.");
  std::int32_t flags = 0;
  for (const core::Json& one : label)
    flags |= 1 << number_of(one, names, where);
  return flags;
}

std::int32_t value_code(const core::Json& label, const std::string& where) {
  if (label.is_number()) {
    const auto value = label.get<float>();
    if (std::isfinite(value)) return model::code_of_value(value);
  }
  refuse(where, label, "a regression learns finite numbers", "Correct it.");
}

std::string flags_text(std::int32_t flags, const Names& names) {
  Names right;
  for (std::size_t i = 0; i < names.size(); ++i)
    if ((flags >> i & 1) != 0) right.push_back(names[i]);
  return fmt::format("[{}]", fmt::join(right, ", "));
}

}  // namespace

data::LabelCoder label_coder(const model::Outputs& outputs, const Names& names) {
  data::LabelCoder coder;
  coder.num_codes = model::num_label_codes(outputs);
  coder.settings =
      fmt::format("{}: {}", model::problem_type(outputs.kind), core::Json(names).dump());
  coder.code = [outputs, names](const data::OrderedJson& given, const std::string& where) {
    const core::Json label = read_label(core::plain_json(given), names);
    return outputs.kind == HeadKind::one_label ? number_of(label, names, where)
           : outputs.kind == HeadKind::labels  ? flags_of(label, names, where)
                                               : value_code(label, where);
  };
  if (outputs.kind == HeadKind::reward) {
    coder.text = [](std::int32_t code) { return code == 1 ? "(preferred)" : "(rejected)"; };
    return coder;
  }
  coder.text = [outputs, names](std::int32_t code) {
    return outputs.kind == HeadKind::one_label ? names.at(static_cast<std::size_t>(code))
           : outputs.kind == HeadKind::labels  ? flags_text(code, names)
                                               : fmt::format("{}", model::value_of_code(code));
  };
  return coder;
}

std::string label_counts(const data::Dataset& samples, const model::Outputs& outputs,
                         const Names& names) {
  const std::int64_t count = samples.num_samples();
  if (outputs.kind == HeadKind::reward)
    return fmt::format("{} of a preferred text and another one",
                       count == 1 ? "1 pair" : core::with_commas(count) + " pairs");
  std::vector<std::int64_t> counts(names.size(), 0);
  std::int64_t num_without = 0;
  float low = std::numeric_limits<float>::infinity(), high = -low;
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t code = samples.sample(i).back().id();
    if (outputs.kind == HeadKind::one_label) {
      ++counts.at(static_cast<std::size_t>(code));
    } else if (outputs.kind == HeadKind::labels) {
      num_without += code == 0;
      for (std::size_t k = 0; k < counts.size(); ++k)
        counts[k] += code >> k & 1;
    } else {
      const float value = model::value_of_code(code);
      low = std::min(low, value);
      high = std::max(high, value);
      sum += value;
    }
  }
  if (outputs.kind == HeadKind::value)
    return fmt::format("numbers from {:.4g} to {:.4g}, {:.4g} on average", low, high,
                       sum / static_cast<double>(count));
  Names texts;
  for (std::size_t k = 0; k < counts.size(); ++k)
    texts.push_back(fmt::format("{} {}", core::with_commas(counts[k]), core::one_line(names[k])));
  if (num_without > 0) texts.push_back(core::with_commas(num_without) + " with none");
  return fmt::format("labels: {}", fmt::join(texts, ", "));
}

}  // namespace finetune::train
