// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/resume.hpp"

#include <gtest/gtest.h>

#include "core/build_info.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "registry.hpp"
#include "support/messages.hpp"

namespace finetune::train::resume_test {
namespace {

Input input_of(std::vector<std::pair<std::string, std::string>> fixed) {
  Input input;
  input.optimizer.kind = &modules::registry().optimizers.front();
  input.deck_path = "input.toml";
  input.data.paths = {"data.json"};
  input.model_folder = "model";
  input.resolved_deck = "[train]\n";
  input.fixed_values = std::move(fixed);
  return input;
}

checkpoint::FoundCheckpoint checkpoint_of(const Input& input) {
  checkpoint::FoundCheckpoint found;
  found.folder = "out/step-0000000007";
  found.step = 7;
  found.state = describe_run(identity_of(input), {.step = 7,
                                                  .metrics_bytes = 123,
                                                  .data_fingerprint = "abc",
                                                  .data_tokens = "ab",
                                                  .source_dtypes = {{"w", "BF16"}},
                                                  .loss_scale = {},
                                                  .threads = 1});
  return found;
}

const DataIdentity same_data{"abc", "ab"};

std::string refusal(const Input& input, const DataIdentity& data,
                    const checkpoint::FoundCheckpoint& found) {
  try {
    require_same_run(identity_of(input), data, found);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::deck);
    return error.what();
  }
  return "nothing thrown";
}

TEST(DescribeRun, HoldsWhatARestartNeeds) {
  const core::Json state = checkpoint_of(input_of({{"optimizer.lr", "1e-3"}})).state.to_json();
  EXPECT_EQ(state["step"], 7);
  EXPECT_EQ(state["metrics_bytes"], 123);
  EXPECT_EQ(state["data_fingerprint"], "abc");
  EXPECT_EQ(state["data_tokens"], "ab");
  EXPECT_EQ(state["source_dtypes"]["w"], "BF16");
  EXPECT_EQ(state["fixed"]["optimizer.lr"], "1e-3");
  EXPECT_EQ(state["deck"], "[train]\n");
  EXPECT_TRUE(std::filesystem::path(state["model_folder"].get<std::string>()).is_absolute())
      << "an export may start from another folder";
}

TEST(WarnOfOtherArithmetic, SpeaksWhereIdenticalResultsAreAskedForAndProductsDiffer) {
  Input input = input_of({});
  checkpoint::FoundCheckpoint found = checkpoint_of(input);
  found.state.arithmetic = "bf16 in fp32, AVX2";
  const auto said = [&](plan::Determinism determinism, const char* arithmetic) {
    input.train.determinism = determinism;
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    warn_of_other_arithmetic(identity_of(input), arithmetic, found);
    return testing::internal::GetCapturedStderr() + testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(said(plan::Determinism::topology, "bf16 in fp32, AVX2"), "");
  EXPECT_EQ(said(plan::Determinism::off, "bf16 by libtorch, AMX"), "");
  const std::string warning = said(plan::Determinism::topology, "bf16 by libtorch, AMX");
  const char* expected = "products of bf16 in fp32, AVX2, this start has bf16 by libtorch, AMX";
  EXPECT_EQ(warning.find(expected) != std::string::npos, log::is_root()) << warning;
  found.state.arithmetic.reset();  // of an earlier version
  EXPECT_EQ(said(plan::Determinism::topology, "bf16 by libtorch, AMX"), "");
}

TEST(RequireSameRun, AcceptsTheSameDeckAndData) {
  const Input input = input_of({{"optimizer.lr", "1e-3"}});
  EXPECT_EQ(refusal(input, same_data, checkpoint_of(input)), "nothing thrown");
}

TEST(RequireSameRun, ListsEveryFixedKeyThatDiffers) {
  const auto found = checkpoint_of(
      input_of({{"optimizer.lr", "1e-3"}, {"train.seed", "42"}, {"train.micro_batch", "2"}}));
  const Input input =
      input_of({{"optimizer.lr", "2e-3"}, {"train.seed", "42"}, {"train.micro_batch", "4"}});
  EXPECT_EQ(refusal(input, same_data, found),
            "input.toml: 2 keys are not what the run in out/step-0000000007 has (its training so "
            "far depends on them). Restore them, or set another train.output to begin a new run.\n "
            "   optimizer.lr = 2e-3, the checkpoint has 1e-3\n    train.micro_batch = 4, the "
            "checkpoint has 2");
}

TEST(RequireSameRun, AcceptsAKeyThatTheCheckpointDoesNotKnow) {
  const auto found = checkpoint_of(input_of({}));
  EXPECT_EQ(refusal(input_of({{"new.key", "1"}}), same_data, found), "nothing thrown");
}

TEST(RequireSameRun, WarnsIfBf16WasRoundedInAnotherWay) {
  const auto warning = [](const Input& input, const checkpoint::FoundCheckpoint& found) {
    testing::internal::CaptureStderr();
    require_same_run(identity_of(input), same_data, found);
    return testing::internal::GetCapturedStderr();
  };
  Input input = input_of({});
  input.precision.mode = plan::PrecisionMode::bf16_true;
  auto found = checkpoint_of(input);
  EXPECT_EQ(found.state.rounding, "stochastic");
  EXPECT_EQ(warning(input, found), "");
  found.state.rounding.reset();
  const std::string expected =
      "warning: out/step-0000000007: its weights were rounded by optimizer.rounding = \"nearest\" "
      "(this start has \"stochastic\", and its numbers will differ). Set optimizer.rounding = "
      "\"nearest\" to continue as before.\n";
  EXPECT_EQ(warning(input, found), log::is_root() ? expected : "") << "an earlier version wrote it";
  input.optimizer.rounding = optim::Rounding::nearest;
  EXPECT_EQ(warning(input, found), "");
  input.precision.mode = plan::PrecisionMode::bf16_mixed;
  EXPECT_FALSE(checkpoint_of(input).state.rounding) << "nothing is kept in bf16";
}

TEST(RequireSameRun, RefusesOtherData) {
  const Input input = input_of({});
  const std::string message = refusal(input, {"abd", "abc"}, checkpoint_of(input));
  EXPECT_TRUE(
      message.starts_with("data.json: is not what the run in out/step-0000000007 was "
                          "trained on"))
      << message;
}

/// Data of another fingerprint, and what is found of those before.
DataIdentity other_data(const std::string& tokens, const DataChange& change) {
  return {"abd", tokens, [=](const std::string& fingerprint) {
            EXPECT_EQ(fingerprint, "abc");
            return change;
          }};
}

constexpr const char* sample = "    As it is read now:\n    1. user\n    - q\n    + a";

TEST(RequireSameRun, TellsOtherMasksOfTheSameTokensAndShowsThem) {
  const Input input = input_of({});
  checkpoint::FoundCheckpoint found = checkpoint_of(input);
  found.state.build = "finetune 0.0.1";
  const auto written_by = [&](std::string message) {
    const std::string own = core::build_stamp();
    if (const auto at = message.find(own); at != std::string::npos)
      message.replace(at, own.size(), "finetune 0.0.2");
    return message;
  };
  const DataIdentity data = other_data("ab", {std::nullopt, sample});
  tests::expect_message(written_by(refusal(input, data, found)), "data.json",
                        {"out/step-0000000007", "finetune 0.0.1", "finetune 0.0.2",
                         "data.allow_changed", "1. user", "+ a"});
  found.state.build = core::build_stamp();
  tests::expect_message(refusal(input, data, found), "data.json", {"end tokens", "1. user"});
}

TEST(RequireSameRun, TakesFromTheCacheWhatAnEarlierCheckpointDoesNotSay) {
  const Input input = input_of({});
  checkpoint::FoundCheckpoint found = checkpoint_of(input);
  found.state.data_tokens.reset();
  const auto said = [&](const DataChange& change) {
    return refusal(input, other_data("ab", change), found);
  };
  tests::expect_message(said({true, sample}), "data.json", {"other tokens", "1. user"});
  // Nobody knows: the conversation tells those who can read it.
  tests::expect_message(said({std::nullopt, sample}), "data.json", {"trained on", "1. user"});
  found.state.build = "finetune 0.0.1";
  tests::expect_message(said({std::nullopt, sample}), "data.json", {"finetune 0.0.1", "1. user"});
  EXPECT_EQ(said({false, sample}).find("1. user"), std::string::npos);
}

TEST(RequireSameRun, LooksAtNoSampleWhereTokensDiffer) {
  const Input input = input_of({});
  const DataIdentity data{"abd", "abd", [](const std::string&) -> DataChange {
                            ADD_FAILURE() << "tokens tell";
                            return {};
                          }};
  EXPECT_EQ(refusal(input, data, checkpoint_of(input)),
            refusal(input, {"abd", "abd"}, checkpoint_of(input)));
}

TEST(RequireSameRun, GoesOnWithOtherMasksWhereTheyMayChange) {
  Input input = input_of({});
  input.data.allow_changed = true;
  testing::internal::CaptureStderr();
  require_same_run(identity_of(input), other_data("ab", {true, sample}), checkpoint_of(input));
  const std::string warning = testing::internal::GetCapturedStderr();
  if (!log::is_root()) return;
  tests::expect_message(warning, "warning: data.json",
                        {"out/step-0000000007", "data.allow_changed", "1. user", "+ a"});
}

}  // namespace
}  // namespace finetune::train::resume_test
