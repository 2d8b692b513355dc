// SPDX-License-Identifier: Apache-2.0
#include "train/infer/evaluate.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "train/infer/detail/token_values.hpp"
#include "train/step/loss_total.hpp"

namespace finetune::train {
namespace {

/// Samples of which no position is wrong: a row may hold several.
std::int64_t count_exact(const data::MicroBatch& batch, const std::vector<std::int64_t>& right) {
  auto token = right.begin();
  std::int64_t count = 0;
  for (const data::RowPart& stretch : batch.stretches) {
    const auto end = token + stretch.length;
    if (!stretch.is_padding)
      count += std::all_of(token, end, [](std::int64_t is_right) { return is_right != 0; });
    token = end;
  }
  return count;
}

/// Ranks that share samples have all counted them: one of them says it.
std::int64_t counted_once(const Engine& engine, std::int64_t count) {
  const auto& cp = engine.shards.groups().cp;
  return cp && cp->rank() > 0 ? 0 : count;
}

}  // namespace

std::optional<Evaluation> evaluate(const Engine& engine, const comm::Communicator& loss_ranks,
                                   data::Stream& stream, const std::function<bool()>& is_left) {
  const auto& cp = engine.shards.groups().cp;
  LossTotal loss(engine.shards.options().numbers.is_fixed_point(),
                 stream.dataset().num_samples() * (cp ? cp->size() : 1));
  double denominator = 0;
  std::int64_t num_exact = 0;
  Evaluation result;
  bool is_first = true;
  for (std::int64_t step = 0; step < stream.sampler().steps_per_epoch(); ++step) {
    const data::StepData data = stream.step(step);
    result.num_samples += data.num_samples;
    denominator += engine.objective.denominator(data);
    for (const auto& micro_batch : data.micro_steps) {
      if (!std::exchange(is_first, false) && is_left && is_left()) {
        engine.shards.release_all();
        return std::nullopt;
      }
      const LossSum sum = forward(engine, micro_batch);
      loss.add(sum.loss);
      if (micro_batch)
        num_exact += count_exact(
            *micro_batch,
            of_all_tokens<std::int64_t>(engine, *micro_batch,
                                        sum.correct_N.to(at::kCPU, at::kLong).contiguous()));
    }
  }
  engine.shards.release_all();
  result.loss = loss.all_reduce(loss_ranks) / denominator;
  result.exact_match = static_cast<double>(loss_ranks.all_reduce(counted_once(engine, num_exact),
                                                                 comm::Reduce::sum)) /
                       static_cast<double>(result.num_samples);
  return result;
}

}  // namespace finetune::train
