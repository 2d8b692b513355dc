// SPDX-License-Identifier: Apache-2.0
#include "train/input/detail/tensor_pattern.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"

namespace finetune::train {
namespace {

/// Of a model with layers the first one's tensor is the better example.
std::string example_in(const model::ParameterTable& table) {
  for (const model::Parameter& row : table.rows)
    if (row.role == model::Role::linear) return row.name;
  return table.rows.empty() ? std::string() : table.rows.front().name;
}

/// What is wrong with it is wrong with the deck.
core::Regex compiled(const std::string& text, const std::string& where) {
  try {
    return core::Regex(text, false, where);
  } catch (const core::Error& error) {
    throw core::Error(core::ErrorKind::deck, error.what());
  }
}

}  // namespace

TensorPattern::TensorPattern(std::string text, std::string where)
    : text_(std::move(text)), where_(std::move(where)), regex_(compiled(text_, where_)) {
  if (text_.empty())
    core::fail(core::ErrorKind::deck,
               {where_, "a pattern is empty", "every name has it in it", "Leave it out."});
}

bool TensorPattern::matches(const model::Parameter& row) const {
  bool is_found = false;
  regex_.for_each(row.name, [&](std::size_t, std::size_t) { is_found = true; });
  return is_found;
}

std::vector<int> TensorPattern::rows_in(const model::ParameterTable& table) const {
  std::vector<int> rows;
  for (int row = 0; row < std::ssize(table.rows); ++row)
    if (matches(table.row(row))) rows.push_back(row);
  if (rows.empty())
    core::fail(core::ErrorKind::deck,
               {where_, fmt::format("\"{}\" is in no tensor's name", core::one_line(text_)),
                fmt::format("they are called {} and so on", example_in(table)),
                "Write a regular expression for a part of such names."});
  return rows;
}

NumberedPattern read_numbered_pattern(const std::string& text, const std::string& where) {
  const std::size_t equals = text.rfind('=');
  double number = -1;
  if (equals != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + equals + 1, end, number);
    if (error != std::errc() || stop != end || !std::isfinite(number)) number = -1;
  }
  if (number < 0)
    core::fail(core::ErrorKind::deck,
               {where, fmt::format("\"{}\" does not end in = and a number", core::one_line(text)),
                "it says which tensors, and how much", "Write for example \"embed_tokens=0.1\"."});
  return {TensorPattern(text.substr(0, equals), where), number};
}

}  // namespace finetune::train
