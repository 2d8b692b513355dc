// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"

namespace finetune::core {

std::string to_string(const Message& message) {
  std::string text =
      message.where.empty() ? message.problem : message.where + ": " + message.problem;
  if (!message.why.empty()) text += " (" + message.why + ")";
  text += ".";
  if (!message.remedy.empty()) text += " " + message.remedy;
  return text;
}

void fail(ErrorKind kind, const Message& message) {
  throw Error(kind, to_string(message));
}

void check(bool condition, const char* what) {
  if (condition) return;
  fail(ErrorKind::bug, {"finetune", what, "this should never happen",
                        "Please report it with the deck and the output of `finetune --version`."});
}

}  // namespace finetune::core
