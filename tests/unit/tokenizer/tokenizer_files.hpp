#pragma once
// SPDX-License-Identifier: Apache-2.0
// Where tokenizer tests find their files, and folders for tokenizers they make up.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/error.hpp"
#include "core/json.hpp"
#include "support/files.hpp"
#include "support/folders.hpp"
#include "support/material.hpp"
#include "tokenizer/tokenizer.hpp"

namespace finetune::tokenizer::test {

using core::Json;

inline std::filesystem::path golden(const std::string& name) {
  return tests::source_folder() / "tests/golden/tokenizers" / name;
}

using tests::material;

inline Json golden_json(const std::string& name) {
  return core::read_json(golden(name), 1 << 24);
}

/// A folder of its own for the running test, removed at the end.
class ModelFolder : public tests::TemporaryFolder {
 public:
  void write_json(const std::string& name, const Json& json) const { write(name, json.dump()); }

  Tokenizer load(const Json& tokenizer) const {
    write_json("tokenizer.json", tokenizer);
    return Tokenizer::load(path());
  }
};

/// The message of the error that `act` throws; empty if it throws none.
template <typename Act>
std::string message_of(const Act& act) {
  try {
    act();
  } catch (const core::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace finetune::tokenizer::test
