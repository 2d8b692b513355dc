// SPDX-License-Identifier: Apache-2.0
#include "core/problems.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace finetune::core {

bool Problems::collect(const std::function<void()>& f) {
  try {
    f();
    return true;
  } catch (const Error& error) {
    const ErrorKind kind = error.kind();
    if (kind != ErrorKind::input && kind != ErrorKind::deck && kind != ErrorKind::create) throw;
    if (messages_.empty()) kind_ = kind;
    if (std::ranges::find(messages_, error.what()) == messages_.end())
      messages_.emplace_back(error.what());
    return false;
  }
}

std::optional<Error> Problems::error(const std::string& where) const {
  if (messages_.empty()) return std::nullopt;
  std::string text = fmt::format("{}", fmt::join(messages_, "\n"));
  if (messages_.size() > 1) text += fmt::format("\n{}: {} problems.", where, messages_.size());
  return Error(kind_, text);
}

}  // namespace finetune::core
