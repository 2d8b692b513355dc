#pragma once
// SPDX-License-Identifier: Apache-2.0
// Configurations and what becomes of them.

#include <gtest/gtest.h>

#include <string>

#include "core/error.hpp"
#include "migrate/migrate.hpp"

namespace finetune::migrate::tests {

/// The least that axolotl and we need.
inline const std::string least =
    "base_model: m\ndatasets:\n  - path: d.json\n    type: alpaca\nlearning_rate: 1e-4\n";

inline std::string deck(const std::string& text, const Options& options = {}) {
  return make_deck(text, "theirs.yml", options);
}

inline std::string refusal(const std::string& text, const Options& options = {},
                           core::ErrorKind kind = core::ErrorKind::deck) {
  try {
    return "a deck: " + deck(text, options);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
}

/// Whether one of `text`'s lines is `line`, perhaps with a comment.
inline bool has_line(const std::string& text, const std::string& line) {
  const std::string all = "\n" + text + "\n";
  return all.find("\n" + line + "\n") != std::string::npos ||
         all.find("\n" + line + "  # ") != std::string::npos;
}

}  // namespace finetune::migrate::tests
