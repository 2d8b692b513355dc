// SPDX-License-Identifier: Apache-2.0
#include "train/corpus/detail/labels.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

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
  coder.code = [outputs, names](const core::Json& label, const std::string& where) {
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

}  // namespace finetune::train
