// SPDX-License-Identifier: Apache-2.0
#include "train/infer/evaluate.hpp"

#include <algorithm>

#include "train/step/loss_total.hpp"

namespace finetune::train {
namespace {

/// Samples of which no position is wrong: a row may hold several.
std::int64_t count_exact(const data::MicroBatch& batch, const at::Tensor& correct_N) {
  const at::Tensor on_host = correct_N.to(at::kCPU, at::kBool).contiguous();
  const bool* correct = on_host.const_data_ptr<bool>();
  std::int64_t count = 0;
  for (const data::RowPart& stretch : batch.stretches) {
    if (!stretch.is_padding)
      count +=
          std::all_of(correct, correct + stretch.length, [](bool is_right) { return is_right; });
    correct += stretch.length;
  }
  return count;
}

}  // namespace

Evaluation evaluate(const Engine& engine, const comm::Communicator& loss_ranks,
                    data::Stream& stream) {
  LossTotal loss(engine.shards.options().numbers.is_fixed_point(), stream.dataset().num_samples());
  double denominator = 0;
  std::int64_t num_exact = 0;
  Evaluation result;
  for (std::int64_t step = 0; step < stream.sampler().steps_per_epoch(); ++step) {
    const data::StepData data = stream.step(step);
    result.num_samples += data.num_samples;
    denominator += engine.objective.denominator(data);
    for (const auto& micro_batch : data.micro_steps) {
      const LossSum sum = forward(engine, micro_batch);
      loss.add(sum.loss);
      if (micro_batch) num_exact += count_exact(*micro_batch, sum.correct_N);
    }
  }
  engine.shards.release_all();
  result.loss = loss.all_reduce(loss_ranks) / denominator;
  result.exact_match = static_cast<double>(loss_ranks.all_reduce(num_exact, comm::Reduce::sum)) /
                       static_cast<double>(result.num_samples);
  return result;
}

}  // namespace finetune::train
