// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/run_state.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "support/errors.hpp"

namespace finetune::checkpoint::run_state_test {
namespace {

core::Json whole() {
  return {{"step", 7},
          {"metrics_bytes", 123},
          {"data_fingerprint", "abc"},
          {"data_tokens", "ab"},
          {"source_dtypes", {{"w", "BF16"}}},
          {"loss_scale", {{"scale", 65536.0}}},
          {"threads", 2},
          {"arithmetic", "fp32"},
          {"model_folder", "/models/tiny"},
          {"fixed", {{"optimizer.lr", "1e-3"}}},
          {"deck", "[train]\n"},
          {"precision", "16-mixed"},
          {"run_id", "0123"},
          {"lineage",
           {{"branch", 2},
            {"parents", {{{"run_id", "4567"}, {"step", 5}}}},
            {"begun_by", {"step-0000000005"}}}},
          {"build", "finetune 0.1.0"},
          {"base", {{"hash", "h"}, {"dtype", "F16"}, {"packing", "nf4"}}},
          {"bucket", "BLOCK"},
          {"adapter", {{"name", "lora"}, {"double_quant", true}, {"config", {{"r", 8}}}}},
          {"rounding", "stochastic"},
          {"validation_loss", 1.25},
          {"total_samples", 640},
          {"total_tokens", 5000000000}};
}

std::string refusal(const core::Json& json) {
  return finetune::tests::refusal_of(core::ErrorKind::input, [&] {
    RunState::from_json(json).require("out/step-0000000007/state.json");
  });
}

std::string refusal_of(const char* field) {
  return std::string("out/step-0000000007/state.json: its field \"") + field +
         "\" is missing or is something else (a restart needs it). Restore it from a copy.";
}

TEST(RunState, ReadsEveryFieldThatItWrites) {
  EXPECT_EQ(RunState::from_json(whole()).to_json(), whole());
}

TEST(RunState, OfAnEarlierVersionLacksWhatCameLater) {
  core::Json json = whole();
  for (const char* field :
       {"data_tokens", "threads", "arithmetic", "precision", "run_id", "lineage", "bucket",
        "rounding", "base", "adapter", "validation_loss", "total_samples", "total_tokens"})
    json.erase(field);
  const RunState state = RunState::from_json(json);
  EXPECT_EQ(state.to_json(), json);
  EXPECT_EQ(refusal(json), "");
}

TEST(RunState, NamesTheFieldThatIsMissingOrSomethingElse) {
  EXPECT_EQ(refusal(whole()), "");
  for (const char* field :
       {"metrics_bytes", "data_fingerprint", "fixed", "source_dtypes", "loss_scale"}) {
    core::Json json = whole();
    json.erase(field);
    EXPECT_EQ(refusal(json), refusal_of(field));
    json[field] = -5;
    EXPECT_EQ(refusal(json), refusal_of(field));
  }
  for (const char* field : {"data_tokens", "threads", "arithmetic", "precision", "run_id", "bucket",
                            "rounding", "base"}) {
    core::Json json = whole();
    json[field] = {1};
    EXPECT_EQ(refusal(json), refusal_of(field));
  }
  core::Json json = whole();
  json["fixed"] = {{"optimizer.lr", 7}};
  EXPECT_EQ(refusal(json), refusal_of("fixed"));
}

TEST(RunState, MayBeNullOrHoldOtherThingsWhereNoRestartLooks) {
  EXPECT_EQ(RunState::from_json(nullptr).step, 0);
  const RunState state =
      RunState::from_json({{"validation_loss", "none"}, {"run_id", 5}, {"later", {1, 2}}});
  EXPECT_FALSE(state.validation_loss);
  EXPECT_FALSE(state.run_id);
}

TEST(AdapterState, NamesTheFieldThatIsMissingOrSomethingElse) {
  for (const char* field : {"config", "name", "double_quant"}) {
    core::Json json = whole();
    json["adapter"][field] = nullptr;
    const RunState state = RunState::from_json(json);
    ASSERT_TRUE(state.adapter);
    EXPECT_EQ(state.adapter->unusable, field);
    EXPECT_THROW(state.adapter->require("state.json"), core::Error);
  }
  EXPECT_EQ(RunState::from_json({{"adapter", 5}}).adapter->unusable, "config");
  RunState::from_json(whole()).adapter->require("state.json");
}

}  // namespace
}  // namespace finetune::checkpoint::run_state_test
