#pragma once
// SPDX-License-Identifier: Apache-2.0
// What is thrown.

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/error.hpp"

namespace finetune::tests {

/// The message of the error of kind `kind` that `f` throws; `otherwise`, if it throws none.
inline std::string refusal_of(core::ErrorKind kind, const std::function<void()>& f,
                              const std::string& otherwise = "") {
  try {
    f();
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return otherwise;
}

/// The same where the test fails if nothing is thrown.
inline std::string error_of(core::ErrorKind kind, const std::function<void()>& f) {
  const std::string message = refusal_of(kind, f, "nothing was thrown");
  if (message == "nothing was thrown") ADD_FAILURE() << message;
  return message;
}

/// That `f` throws such an error, which says `part`.
inline void expect_error(core::ErrorKind kind, const std::string& part,
                         const std::function<void()>& f) {
  const std::string message = error_of(kind, f);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

}  // namespace finetune::tests
