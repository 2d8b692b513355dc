#pragma once
// SPDX-License-Identifier: Apache-2.0
// What is read of a configuration, for the tests of families.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "model/family.hpp"
#include "registry.hpp"
#include "support/folders.hpp"

namespace finetune::tests::configs {

/// Shapes by name.
using Tensors = std::map<std::string, std::vector<std::int64_t>>;

/// The configuration of a model of published_models.json.
inline core::Json published(const std::string& name) {
  const core::Json models =
      core::read_json(source_folder() / "tests/modules/families/published_models.json", 1 << 20);
  for (const core::Json& model : models)
    if (model.at("name") == name) return model.at("config");
  ADD_FAILURE() << "no " << name;
  return {};
}

inline model::Identified identify(const core::Json& config) {
  return model::identify(config.dump(), "config.json", modules::registry().families);
}

inline model::ParameterTable table_of(const core::Json& config) {
  const auto identified = identify(config);
  return identified.family->describe(identified.architecture);
}

/// These are among the tensors.
inline void expect_tensors(const core::Json& config, const Tensors& tensors) {
  Tensors in_table;
  for (const model::Parameter& row : table_of(config).rows)
    in_table[row.name] = row.shape;
  for (const auto& [name, shape] : tensors) {
    ASSERT_TRUE(in_table.contains(name)) << name;
    EXPECT_EQ(in_table[name], shape) << name;
  }
}

/// With this value the configuration is refused, and the key is named.
inline void expect_refused(core::Json config, const std::string& key, const core::Json& value) {
  config[key] = value;
  try {
    identify(config);
    ADD_FAILURE() << key;
  } catch (const core::Error& error) {
    EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
  }
}

}  // namespace finetune::tests::configs
