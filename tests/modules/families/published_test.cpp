// SPDX-License-Identifier: Apache-2.0
// What of today's published models is accepted: published_models.json has the settings of their
// config.json that matter, and whether they are. Of the others the message says what it is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/json.hpp"
#include "model/quantization.hpp"
#include "registry.hpp"
#include "support/folders.hpp"

namespace finetune::published_test {
namespace {

/// The message that refuses it, or nothing.
std::string refusal_of(const core::Json& config, const std::string& name) {
  try {
    const auto identified = model::identify(config.dump(), name, modules::registry().families);
    model::ParameterTable table = identified.family->describe(identified.architecture);
    model::mark_packed(model::read_quantization(config, name, {}, ""), name, table);
    return "";
  } catch (const core::Error& error) {
    return error.what();
  }
}

TEST(PublishedModels, AreAcceptedOrToldWhyNot) {
  constexpr std::int64_t least_accepted = 95;
  const core::Json models = core::read_json(
      tests::source_folder() / "tests/modules/families/published_models.json", 1 << 20);
  std::int64_t accepted = 0;
  for (const core::Json& model : models) {
    const auto name = model.at("name").get<std::string>();
    const std::string refusal = refusal_of(model.at("config"), name);
    accepted += refusal.empty() ? 1 : 0;
    if (model.at("accepted").get<bool>()) {
      EXPECT_EQ(refusal, "");
    } else {
      // The key that stops it, where the family is known.
      const auto type =
          model.value("stopped_by", model.at("config").at("model_type").get<std::string>());
      EXPECT_TRUE(
          refusal.find(name) != std::string::npos &&
          (refusal.find(type) != std::string::npos || refusal.find("quant") != std::string::npos))
          << name << ": " << refusal;
      fmt::print("{}\n", refusal.substr(0, refusal.find("known: ")));
    }
  }
  fmt::print("{} of {} configurations are accepted\n", accepted, models.size());
  EXPECT_GE(accepted, least_accepted);
}

TEST(PublishedModels, HaveTheirFamilyInTheTable) {
  const std::string readme = core::read_text(tests::source_folder() / "modules/README.md", 1 << 20);
  for (const model::ModelFamily& family : modules::registry().families)
    for (const std::string& type : family.model_types)
      EXPECT_NE(readme.find('`' + type + '`'), std::string::npos)
          << type << " is missing in modules/README.md";
}

}  // namespace
}  // namespace finetune::published_test
