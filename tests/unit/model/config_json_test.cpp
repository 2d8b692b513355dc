// SPDX-License-Identifier: Apache-2.0
#include "model/config_json.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "core/error.hpp"

namespace finetune::model::config_json_test {
namespace {

/// What is said about config.json when `read` is done to it.
std::string refusal(const char* text, const std::function<void(const ConfigReader&)>& read) {
  const core::Json json = core::parse_json(text, "config.json");
  try {
    read(ConfigReader(json, "config.json"));
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::input);
    return error.what();
  }
  return "nothing thrown";
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in: " << text;
}

void size_of_a(const ConfigReader& config) {
  config.size("a");
}

TEST(ConfigReader, TakesSizesFromOneToTwoToTheForty) {
  const core::Json json = core::parse_json(R"({"a": 1, "b": 1099511627776, "c": null})", "c");
  const ConfigReader config(json, "c");
  EXPECT_EQ(config.size("a"), 1);
  EXPECT_EQ(config.size("b"), std::int64_t{1} << 40);
  EXPECT_EQ(config.size("missing", 7), 7);
  EXPECT_EQ(config.size("c", 7), 7) << "null means not set";
}

TEST(ConfigReader, RefusesWhatIsNoSize) {
  for (const char* text : {R"({"a": 0})", R"({"a": -1})", R"({"a": 1099511627777})",
                           R"({"a": 18446744073709551615})", R"({"a": 9223372036854775807})"}) {
    expect_part(refusal(text, size_of_a), "a size from 1 to 2^40 is expected");
  }
  for (const char* text : {R"({"a": 1.0})", R"({"a": "8"})", R"({"a": [8]})", R"({"a": true})"}) {
    const std::string message = refusal(text, size_of_a);
    EXPECT_TRUE(message.starts_with("config.json")) << message;
    EXPECT_NE(message, "nothing thrown") << text;
  }
}

TEST(ConfigReader, NamesFileKeyReasonAndRemedy) {
  EXPECT_EQ(refusal("{}", size_of_a),
            "config.json: \"a\" is missing (the model's shape depends on it). Use the config.json "
            "the model was published with.");
}

TEST(ConfigReader, RefusesOtherTypes) {
  expect_part(refusal(R"({"a": "x"})", [](const auto& c) { c.real("a"); }), "finite number");
  expect_part(refusal("{}", [](const auto& c) { c.real("a"); }), "is missing");
  expect_part(refusal(R"({"a": 1})", [](const auto& c) { c.boolean("a", false); }),
              "true or false");
  expect_part(refusal(R"({"a": 1})", [](const auto& c) { c.text("a", ""); }), "a string");
  expect_part(refusal(R"({"a": "b"})", [](const auto& c) { c.require_text("a", "c", {"c"}); }),
              "\"a\" is \"b\"");
  expect_part(refusal(R"({"a": true})", [](const auto& c) { c.require_false("a"); }), "is true");
}

Architecture rope_of(const char* text) {
  const core::Json json = core::parse_json(text, "config.json");
  Architecture architecture;
  read_rope(ConfigReader(json, "config.json"), architecture);
  return architecture;
}

std::string rope_refusal(const char* text) {
  return refusal(text, [](const ConfigReader& config) {
    Architecture architecture;
    read_rope(config, architecture);
  });
}

TEST(ReadRope, HasDefaults) {
  EXPECT_EQ(rope_of("{}").rope_theta, 10000);
  EXPECT_EQ(rope_of(R"({"rope_scaling": null})").rope_scaling.kind, RopeScaling::Kind::none);
  EXPECT_EQ(rope_of(R"({"rope_scaling": {"type": "default"}})").rope_scaling.kind,
            RopeScaling::Kind::none);
}

TEST(ReadRope, TakesThetaFromInsideEitherObjectBeforeItsOwn) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const std::string inside =
        "\"" + std::string(key) + R"(": {"rope_type": "linear", "factor": 2, "rope_theta": 5e5})";
    EXPECT_EQ(rope_of(("{" + inside + "}").c_str()).rope_theta, 5e5) << key;
    EXPECT_EQ(rope_of((R"({"rope_theta": 3, )" + inside + "}").c_str()).rope_theta, 5e5) << key;
  }
  EXPECT_EQ(
      rope_of(R"({"rope_theta": 3, "rope_scaling": {"type": "linear", "factor": 2}})").rope_theta,
      3);
}

TEST(ReadRope, RefusesTwoObjectsThatDiffer) {
  const auto both = [](const char* old_one, const char* new_one) {
    return R"({"rope_scaling": )" + std::string(old_one) + R"(, "rope_parameters": )" + new_one +
           "}";
  };
  expect_part(
      rope_refusal(both(R"({"type": "linear", "factor": 2})", R"({"rope_theta": 5e5})").c_str()),
      R"("rope_scaling" and "rope_parameters" differ)");
  const char* linear = R"({"rope_type": "linear", "factor": 2})";
  EXPECT_EQ(rope_of(both(linear, linear).c_str()).rope_scaling.factor, 2);
  EXPECT_EQ(rope_of(both("null", linear).c_str()).rope_scaling.factor, 2);
  EXPECT_EQ(rope_of(both("{}", linear).c_str()).rope_scaling.factor, 2);
}

TEST(ReadRope, TakesTheOriginalLengthFromBesideTheObjectFirst) {
  const char* yarn =
      R"({"original_max_position_embeddings": 64, "rope_scaling": {"rope_type": "yarn",
                         "factor": 4, "original_max_position_embeddings": 128}})";
  EXPECT_EQ(rope_of(yarn).rope_scaling.original_max_positions, 64);
}

Architecture with_part(const char* text, std::optional<double> unsaid) {
  const core::Json json = core::parse_json(text, "config.json");
  Architecture architecture;
  architecture.head_size = 16;
  read_rope(ConfigReader(json, "config.json"), architecture, unsaid);
  return architecture;
}

TEST(ReadRope, TurnsAPartOfAHeadOnlyInFamiliesThatSaySo) {
  const char* half = R"({"rope_parameters": {"partial_rotary_factor": 0.5}})";
  EXPECT_EQ(with_part(half, 1).rotary_size, 8);
  EXPECT_EQ(
      with_part(
          R"({"partial_rotary_factor": 0.5, "rope_scaling": {"partial_rotary_factor": 0.25}})", 1)
          .rotary_size,
      4);
  EXPECT_EQ(with_part("{}", 0.5).rotary_size, 8);
  EXPECT_EQ(with_part(R"({"partial_rotary_factor": null})", 0.5).turned_channels(), 16);
  EXPECT_EQ(with_part(R"({"partial_rotary_factor": 1.0})", {}).turned_channels(), 16);
  expect_part(rope_refusal(half), R"("partial_rotary_factor" is 0.5 (all channels of a head turn)");
  expect_part(rope_refusal(R"({"partial_rotary_factor": 0.5})"),
              R"("partial_rotary_factor" is 0.5)");
}

TEST(ReadRope, UnderstandsTheOldNameOfTheType) {
  const Architecture a = rope_of(R"({"rope_scaling": {"type": "linear", "factor": 2.5}})");
  EXPECT_EQ(a.rope_scaling.kind, RopeScaling::Kind::linear);
  EXPECT_EQ(a.rope_scaling.factor, 2.5);
}

TEST(ReadRope, UnderstandsYarn) {
  const RopeScaling with_defaults = rope_of(R"({"rope_scaling": {"type": "yarn", "factor": 4,
                  "original_max_position_embeddings": 32768}})")
                                        .rope_scaling;
  EXPECT_EQ(with_defaults.kind, RopeScaling::Kind::yarn);
  EXPECT_EQ(with_defaults.original_max_positions, 32768);
  EXPECT_EQ(with_defaults.beta_fast, 32);
  EXPECT_EQ(with_defaults.beta_slow, 1);
  EXPECT_TRUE(with_defaults.is_truncated);
  EXPECT_NEAR(with_defaults.amplitude, 1 + 0.1 * std::log(4), 1e-12);
  const auto with = [](const std::string& more) {
    return rope_of((R"({"rope_parameters": {"rope_type": "yarn", "factor": 40,
                        "original_max_position_embeddings": 4096, )" +
                    more + "}}")
                       .c_str())
        .rope_scaling;
  };
  EXPECT_EQ(with(R"("attention_factor": 1.5)").amplitude, 1.5);
  EXPECT_EQ(with(R"("mscale": 0.7, "mscale_all_dim": 0.7)").amplitude, 1);
  EXPECT_NEAR(with(R"("mscale": 0.7, "mscale_all_dim": 1.4)").amplitude,
              (1 + 0.07 * std::log(40)) / (1 + 0.14 * std::log(40)), 1e-12);
  EXPECT_FALSE(with(R"("truncate": false)").is_truncated);
  EXPECT_EQ(with(R"("beta_fast": 16, "beta_slow": 2)").beta_fast, 16);
}

TEST(ReadRope, RefusesYarnThatHasNoMeaning) {
  const auto refused = [](const std::string& more) {
    return rope_refusal((R"({"rope_scaling": {"rope_type": "yarn", "factor": 4,
                             "original_max_position_embeddings": 64, )" +
                         more + "}}")
                            .c_str());
  };
  expect_part(refused(R"("beta_slow": 0)"), "\"beta_slow\" is not positive");
  expect_part(refused(R"("beta_fast": 0.5)"), "\"beta_fast\" is below beta_slow");
  expect_part(refused(R"("attention_factor": 0)"), "\"attention_factor\" is not positive");
  expect_part(rope_refusal(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4}})"),
              "\"original_max_position_embeddings\" is missing");
  expect_part(rope_refusal(R"({"rope_theta": 1, "rope_scaling": {"rope_type": "yarn", "factor": 4,
                  "original_max_position_embeddings": 64}})"),
              "\"rope_theta\" is not above 1");
}

TEST(ReadRope, RefusesWhatHasNoMeaning) {
  expect_part(rope_refusal(R"({"rope_scaling": 2})"), "an object is expected");
  expect_part(rope_refusal(R"({"rope_scaling": {"type": "linear"}})"),
              "config.json: rope_scaling: \"factor\" is missing");
  expect_part(rope_refusal(R"({"rope_scaling": {"type": "linear", "factor": 0}})"),
              "\"factor\" is not positive");
  expect_part(rope_refusal(R"({"rope_parameters": {"rope_type": "axial", "factor": 2}})"),
              "known: default, linear, dynamic, llama3, yarn, longrope, proportional");
  expect_part(rope_refusal(R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1]}})"),
              "\"short_factor\" has not");
  expect_part(rope_refusal(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8,
                  "low_freq_factor": 4, "high_freq_factor": 3,
                  "original_max_position_embeddings": 64}})"),
              "\"high_freq_factor\" is below low_freq_factor");
}

TEST(ReadRope, RefusesABaseWithoutAngles) {
  expect_part(rope_refusal(R"({"rope_theta": 0})"), "\"rope_theta\" is not positive");
  expect_part(rope_refusal(R"({"rope_parameters": {"rope_theta": -1.0}})"),
              "\"rope_theta\" is not positive");
}

TEST(ReadDtype, KnowsBothNamesOfTheKey) {
  const auto dtype = [](const char* text) {
    const core::Json json = core::parse_json(text, "config.json");
    return read_dtype(ConfigReader(json, "config.json"));
  };
  EXPECT_EQ(dtype("{}"), core::DType::f32);
  EXPECT_EQ(dtype(R"({"torch_dtype": "bfloat16"})"), core::DType::bf16);
  EXPECT_EQ(dtype(R"({"dtype": "float16"})"), core::DType::f16);
  expect_part(refusal(R"({"dtype": "int8"})", [](const auto& c) { read_dtype(c); }),
              "known: float32, bfloat16, float16");
}

}  // namespace
}  // namespace finetune::model::config_json_test
