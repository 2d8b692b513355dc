// SPDX-License-Identifier: Apache-2.0
// What a GPU runs, on the CPU: the compositions give what the kernels give.

#include <gtest/gtest.h>

#include "model/rope.hpp"
#include "registry.hpp"
#include "support/golden.hpp"
#include "support/ranks.hpp"
#include "train/infer/generate.hpp"
#include "train/infer/loaded_model.hpp"

namespace finetune::composed_test {
namespace {

struct Result {
  double loss = 0;
  std::vector<at::Tensor> gradients;  ///< of this rank's shards, by unit
  std::vector<std::int32_t> tokens;
};

/// Each rank passes one row forward and backward (the third and fourth begin anew); then all
/// generate.
Result run(const char* name, model::Path path) {
  constexpr std::int64_t length = 32;
  const auto files =
      weights::ModelFiles::open(tests::golden(std::string("cases/") + name + ".safetensors"));
  train::LoadedModel loaded(tests::golden(std::string("models/") + name), modules::registry(),
                            tests::world(), core::DType::f32);
  const train::Engine own = loaded.engine();
  model::Ops ops(own.shards, path);
  const train::Engine engine{own.architecture, own.model, ops, own.shards};

  const std::int64_t row = tests::world().rank() % 2;
  data::MicroBatch batch{.batch = 1, .length = length - 1, .ids = {}, .labels = {}};
  batch.ids = tests::read_golden<std::int64_t>(files, "input_ids", row * length, length - 1);
  batch.labels = tests::read_golden<std::int64_t>(files, "labels", row * length + 1, length - 1);
  engine.shards.reset_gradients(tests::world().size());
  Result result;
  result.loss = train::forward_backward(engine, batch, 1.0 / 64).loss;
  engine.shards.finish_gradients();
  for (int unit = 0; unit < engine.shards.num_units(); ++unit)
    result.gradients.push_back(engine.shards.gradient(unit).clone());
  const std::vector<std::int32_t> prompt(8, 5);
  result.tokens = train::generate(engine, prompt, {.max_tokens = 6, .stop = {}});
  return result;
}

class LlamaComposed : public testing::TestWithParam<const char*> {};

TEST_P(LlamaComposed, GivesWhatTheKernelsGive) {
  const Result kernels = run(GetParam(), model::Path::kernels);
  const Result composed = run(GetParam(), model::Path::composed);
  EXPECT_GT(kernels.loss, 0);
  EXPECT_NEAR(composed.loss, kernels.loss, 1e-5 * kernels.loss);
  for (std::size_t unit = 0; unit < kernels.gradients.size(); ++unit) {
    const at::Tensor difference = (composed.gradients[unit] - kernels.gradients[unit]).abs().max();
    const double largest = kernels.gradients[unit].abs().max().item<double>();
    EXPECT_LE(difference.item<double>(), 1e-5 * largest) << "unit " << unit;
  }
  EXPECT_EQ(composed.tokens, kernels.tokens);
}

INSTANTIATE_TEST_SUITE_P(Models, LlamaComposed, testing::Values("llama", "llama_tied"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace finetune::composed_test
