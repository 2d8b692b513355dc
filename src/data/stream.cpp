// SPDX-License-Identifier: Apache-2.0
#include "data/stream.hpp"

namespace finetune::data {

StepData Stream::step(std::int64_t step) {
  const std::vector<std::int64_t> batch = sampler_.batch(step);
  StepData data;
  data.num_samples = std::ssize(batch);
  data.num_trained_tokens = num_trained_tokens(dataset_, batch);
  for (const std::int64_t i : batch)
    data.num_tokens += std::ssize(dataset_.sample(i));
  for (std::int64_t k = 0; k < grid_.num_micro_steps(data.num_samples); ++k) {
    const auto samples = grid_.samples(batch, k);
    data.micro_steps.emplace_back();
    if (samples) data.micro_steps.back() = collate(dataset_, *samples, pad_id_, length_step);
  }
  return data;
}

}  // namespace finetune::data
