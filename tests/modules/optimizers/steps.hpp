#pragma once
// SPDX-License-Identifier: Apache-2.0
// Steps of an optimizer on small shards, and what they leave.

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "optim/optimizer.hpp"
#include "support/shards.hpp"

namespace finetune::tests {

inline float wave(int row, std::int64_t i, std::int64_t step) {
  return std::sin(static_cast<float>(7 * row + 3 * i + 5 * step));
}

inline optim::OptimizerSettings decaying_by(double weight_decay) {
  optim::OptimizerSettings settings;
  settings.weight_decay = weight_decay;
  return settings;
}

/// A step from the gradients gradient_of(row, element).
template <typename Gradient>
void take_step(OddShards& odd, optim::Optimizer& optimizer, std::int64_t step, double lr,
               double scale, const Gradient& gradient_of) {
  odd.for_each_gradient(
      [&](int row, std::int64_t i, float& value) { value = gradient_of(row, i); });
  optimizer.step(odd.shards, step, lr, scale);
}

/// `num_steps` of them; the gradients are gradient_of(row, element, step).
template <typename Gradient>
void take_steps(OddShards& odd, optim::Optimizer& optimizer, std::int64_t num_steps, double lr,
                double scale, const Gradient& gradient_of) {
  for (std::int64_t step = 0; step < num_steps; ++step)
    take_step(odd, optimizer, step, lr, scale,
              [&](int row, std::int64_t i) { return gradient_of(row, i, step); });
}

/// The bytes of master weights and of what `optimizer` keeps, of all elements and blocks of a unit
/// in their order. Collective.
inline std::map<std::string, std::string> state_of(const OddShards& odd,
                                                   const optim::Optimizer& optimizer) {
  std::map<std::string, std::string> state;
  for (const int unit : odd.shards.trained_units()) {
    const plan::UnitLayout& layout = odd.map.unit(unit);
    std::vector<optim::StateTensor> all = optimizer.kept(unit);
    all.push_back({"master", odd.shards.master(unit)});
    for (const optim::StateTensor& kept : all) {
      std::string& whole = state[layout.name + " " + kept.kind];
      for (const std::string& part : odd.shards.fsdp().all_gather_text(std::string(
               static_cast<const char*>(kept.values.const_data_ptr()), kept.values.nbytes())))
        whole += part;
      const std::int64_t count = (layout.count + kept.block - 1) / kept.block;
      whole.resize(static_cast<std::size_t>(count * kept.values.element_size()));
    }
  }
  return state;
}

/// That the weights are `exact` ones, and what is published is rounded.
inline void expect_published_rounded(const OddShards& rounded, const OddShards& exact) {
  for (const int unit : rounded.shards.trained_units()) {
    EXPECT_TRUE(at::equal(rounded.shards.master(unit), exact.shards.master(unit)));
    EXPECT_TRUE(
        at::equal(rounded.shards.published(unit), rounded.shards.master(unit).to(at::kBFloat16)));
  }
}

}  // namespace finetune::tests
