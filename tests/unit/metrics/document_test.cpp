// SPDX-License-Identifier: Apache-2.0
// inputs/metrics.md names the fields of every row that this program writes, and no others.
#include "support/record_document.hpp"

#include <gtest/gtest.h>

#include "metrics/records.hpp"
#include "metrics/start_file.hpp"

namespace finetune::metrics::document_test {
namespace {

using tests::documented_fields;
using tests::fields_of;

void expect_documented(const std::string& kind, const std::string& whole, const std::string& bare) {
  const tests::Fields fields = documented_fields(kind);
  tests::FieldNames all = fields.always;
  all.insert(fields.where_known.begin(), fields.where_known.end());
  EXPECT_EQ(fields_of(whole), all) << kind;
  EXPECT_EQ(fields_of(bare), fields.always) << kind;
}

TEST(MetricsDocument, HasTheFieldsOfSteps) {
  TimeReport times;
  times.num_steps = 10;
  times.sent_bytes = {{"fsdp", 8}};
  times.exposed_s = {{"fsdp", 0.5}};
  times.peak = {1, 2};
  DeviceReport devices;
  for (const char* name : DeviceUse::names)
    devices.values[name] = {1, 2, 3};
  devices.gpu_energy_j = devices.cpu_energy_j = 1;
  devices.slow = {{1, "node", "why"}};
  LinkReport links;
  links.axes["fsdp"] = {{1, 2, 3}, "node"};
  links.slow = {{"fsdp", "node", 1, 3}};
  expect_documented("loss",
                    to_json(StepRecord{.step = 1,
                                       .epoch = 1,
                                       .balance_loss = 1,
                                       .total_samples = 1,
                                       .total_tokens = 1,
                                       .tokens_per_s_per_rank = 1,
                                       .tflops_per_rank = 1,
                                       .mfu = 1,
                                       .unix_time_s = 1,
                                       .norms = {{0, "embedding", 1, 1}},
                                       .noise = NoiseReport{1, 1, 1, 1},
                                       .times = times,
                                       .devices = devices,
                                       .links = links}),
                    to_json(StepRecord{.step = 1}));
}

TEST(MetricsDocument, HasTheFieldsOfOtherRows) {
  expect_documented(
      "validation_loss",
      to_json(ValidationRecord{.step = 1, .exact_match = 1, .ema_validation_loss = 1}),
      to_json(ValidationRecord{.step = 1, .exact_match = {}}));
  const std::string evaluated =
      to_json(EvaluationRecord{.step = 1, .figures = {{"arc/accuracy", 0.5, 0.25}}});
  expect_documented("evaluation", evaluated, evaluated);
  const std::string saved = to_json(CheckpointRecord{.step = 1, .level = "shared"});
  expect_documented("checkpoint", saved, saved);
  const std::string resumed = to_json(ResumeRecord{.step = 1});
  expect_documented("resume", resumed, resumed);
  const std::string answers = to_json(AnswersRecord{.step = 1, .answers = {{"a", "b", "c"}}});
  expect_documented("answers", answers, answers);
}

TEST(MetricsDocument, HasTheFieldsOfStarts) {
  const std::string start = to_json(StartRecord{.planned_bytes = {{"weights", 1}}});
  expect_documented("start", start, start);
  const std::string end = to_json(EndRecord{.step = 1});
  expect_documented("end", end, end);
}

}  // namespace
}  // namespace finetune::metrics::document_test
