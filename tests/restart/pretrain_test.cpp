// SPDX-License-Identifier: Apache-2.0
// From random weights and plain text: the loss falls, and does not depend on the number of ranks.
#include <gtest/gtest.h>

#include <algorithm>

#include "restart/job.hpp"

namespace finetune::tests::pretrain_test {
namespace {

/// 24 steps on `ranks` ranks; no weights are in the model folder.
Job pretrained(int ranks) {
  Job job("pretrain.r" + std::to_string(ranks),
          {"model.init=random", "data.path=text.txt", "data.format=text", "data.max_seq_length=48",
           "precision.mode=32-true", "train.max_steps=24", "train.global_batch=7",
           "train.micro_batch=3", "optimizer.lr=5e-3", "optimizer.warmup_ratio=0.1"});
  std::filesystem::remove(job.model() / "model.safetensors");
  std::string text;
  for (int i = 0; i < 120; ++i)
    text += "After " + std::to_string(i) + " comes " + std::to_string(i + 1) + ".\n";
  write_file(job.folder() / "text.txt", text);
  const Outcome outcome = job.run(ranks);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  return job;
}

TEST(Pretraining, LearnsTheSameOnAnyNumberOfRanks) {
  const auto one = pretrained(1).steps();
  const auto three = pretrained(3).steps();
  ASSERT_EQ(one.size(), 24u);
  ASSERT_EQ(three.size(), 24u);
  const auto loss = [](const core::Json& row) { return row.at("loss").get<double>(); };
  EXPECT_NEAR(loss(one.front()), 6.24, 0.3);  // log(512): nothing is known
  EXPECT_LT(loss(one.back()), 0.7 * loss(one.front()));
  for (std::size_t i = 0; i < one.size(); ++i)
    EXPECT_NEAR(loss(one[i]), loss(three[i]), 1e-5) << "step " << i + 1;
}

}  // namespace
}  // namespace finetune::tests::pretrain_test
