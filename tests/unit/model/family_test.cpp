// SPDX-License-Identifier: Apache-2.0
#include "model/family.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "model/config_json.hpp"

namespace finetune::model::family_test {
namespace {

/// A family that takes every number from the file.
Architecture read_any(const core::Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  const auto size = [&](const char* key) { return reader.size(key, 2); };
  Architecture a;
  a.num_layers = size("layers");
  a.vocab_size = size("vocabulary");
  a.d_model = size("width");
  a.num_heads = size("heads");
  a.num_kv_heads = 1;
  a.head_size = size("head_size");
  a.d_ff = size("feed_forward");
  return a;
}

const std::vector<ModelFamily>& families() {
  static const std::vector<ModelFamily> all = {
      {"plain", {"plain", "plainer"}, read_any, nullptr, nullptr},
      {"fancy", {"fancy"}, read_any, nullptr, nullptr}};
  return all;
}

std::string refusal(const std::string& config) {
  try {
    identify(config, "m/config.json", families());
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::input);
    return error.what();
  }
  return "nothing thrown";
}

TEST(Identify, FindsTheFamilyThatClaimsTheType) {
  const Identified found = identify(R"({"model_type": "plainer", "layers": 3})", "c", families());
  EXPECT_EQ(found.family->name, "plain");
  EXPECT_EQ(found.architecture.family, "plain");
  EXPECT_EQ(found.architecture.num_layers, 3);
}

TEST(Identify, ListsWhatItKnows) {
  EXPECT_EQ(refusal(R"({"model_type": "plan"})"),
            "m/config.json: unknown model_type \"plan\" (known: fancy, plain, plainer). Did you "
            "mean \"plain\"?");
}

TEST(Identify, SuggestsForMisspellingsAlone) {
  for (const char* type : {"plian", "pplain", "fncy"})
    EXPECT_NE(refusal(fmt::format(R"({{"model_type": "{}"}})", type)).find("Did you mean"),
              std::string::npos)
        << type;
  // Other architectures: no other name in the file makes them a known one.
  for (const char* type : {"plaid", "plain2", "plaining", "fancier", "f", ""})
    EXPECT_NE(refusal(fmt::format(R"({{"model_type": "{}"}})", type))
                  .find("Choose a model of one of these families."),
              std::string::npos)
        << type;
}

TEST(Identify, ReadsNumbersThatOnlyPythonWrites) {
  const Identified found =
      identify(R"({"model_type": "plain", "layers": 3, "limits": [0.0, Infinity, -Infinity, NaN]})",
               "c", families());
  EXPECT_EQ(found.architecture.num_layers, 3);
  EXPECT_NE(refusal(R"({"model_type": "plain", "layers": Infinity})").find("\"layers\" is"),
            std::string::npos);
}

TEST(Identify, RefusesAFileWithoutAType) {
  for (const char* text : {"{}", "[]", "3", R"({"model_type": 3})"})
    EXPECT_NE(refusal(text).find("has no \"model_type\""), std::string::npos) << text;
  EXPECT_TRUE(refusal("{").starts_with("m/config.json"));
}

/// The products below do not fit into 64 bits, and a table of so many layers into no memory.
TEST(Identify, RefusesModelsThatCannotBeCounted) {
  for (
      const char* config :
      {R"({"model_type": "plain", "layers": 1099511627776})",
       R"({"model_type": "plain", "width": 1099511627776, "vocabulary": 1099511627776})",
       R"({"model_type": "plain", "width": 1099511627776, "feed_forward": 1099511627776})",
       R"({"model_type": "plain", "heads": 1099511627776, "head_size": 1099511627776})",
       R"({"model_type": "plain", "layers": 100000, "width": 1000000, "feed_forward": 1000000})"}) {
    const std::string message = refusal(config);
    EXPECT_NE(message.find("m/config.json: describes a model of"), std::string::npos) << message;
  }
}

TEST(Identify, AcceptsTheLargestModelsThereAre) {
  // Llama 3.1 405B.
  EXPECT_EQ(refusal(R"({"model_type": "plain", "layers": 126, "width": 16384,
                        "vocabulary": 128256, "heads": 128, "head_size": 128,
                        "feed_forward": 53248})"),
            "nothing thrown");
}

TEST(ReadConfig, SaysWhatAModelIs) {
  try {
    read_config("/no such folder");
    ADD_FAILURE() << "nothing thrown";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::input);
    EXPECT_TRUE(std::string(error.what()).starts_with("/no such folder: is not there"))
        << error.what();
  }
}

}  // namespace
}  // namespace finetune::model::family_test
