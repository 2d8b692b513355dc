// SPDX-License-Identifier: Apache-2.0
#include "train/infer/generate.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.hpp"
#include "core/random.hpp"
#include "model/rope.hpp"

namespace finetune::train {
namespace {

at::Tensor to_tensor(std::span<const std::int32_t> ids, at::Device device) {
  at::Tensor tensor = at::empty({std::ssize(ids)}, at::kLong);
  std::copy(ids.begin(), ids.end(), tensor.data_ptr<std::int64_t>());
  return tensor.to(device);
}

}  // namespace

std::int32_t choose(std::span<const float> logits, const Sampling& sampling, std::uint64_t index) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (sampling.temperature <= 0) return static_cast<std::int32_t>(best - logits.begin());

  std::vector<double> probability(logits.size());
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    probability[i] = std::exp((static_cast<double>(logits[i]) - *best) / sampling.temperature);
    sum += probability[i];
  }
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto p = [&](std::int32_t token) { return probability[static_cast<std::size_t>(token)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return p(a) > p(b); });
  double kept = 0;
  std::size_t num_kept = 0;
  while (num_kept < order.size() && (num_kept == 0 || kept < sampling.top_p * sum))
    kept += p(order[num_kept++]);

  double point = core::RandomKey(sampling.seed, core::RandomUse::sampling).uniform(index) * kept;
  for (std::size_t i = 0; i + 1 < num_kept; ++i) {
    point -= p(order[i]);
    if (point < 0) return order[i];
  }
  return order[num_kept - 1];
}

std::vector<std::int32_t> generate(const Engine& engine, std::span<const std::int32_t> prompt,
                                   const Sampling& sampling,
                                   const std::function<void(std::int32_t)>& on_token) {
  core::check(!prompt.empty(), "a prompt has at least one token");
  const model::Architecture& architecture = engine.architecture;
  const std::int64_t room = architecture.max_positions - std::ssize(prompt);
  const std::int64_t limit = std::min(sampling.max_tokens, room);
  const at::Device device = engine.shards.options().device;
  model::KvCache cache;
  cache.layers.resize(static_cast<std::size_t>(architecture.num_layers));
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> input(prompt.begin(), prompt.end());
  while (std::ssize(tokens) < limit) {
    const model::Sequence sequence =
        model::make_sequence(architecture, std::ssize(input), cache, device);
    const at::Tensor logits_V =
        logits(engine, to_tensor(input, device), sequence, Positions::last).cpu().contiguous();
    cache.length += std::ssize(input);
    const std::int64_t num_choices = sampling.vocab_size > 0
                                         ? std::min(sampling.vocab_size, logits_V.numel())
                                         : logits_V.numel();
    const std::span<const float> values(logits_V.const_data_ptr<float>(),
                                        static_cast<std::size_t>(num_choices));
    std::int32_t token = choose(values, sampling, static_cast<std::uint64_t>(tokens.size()));
    // Ranks with other threads may round a near-tie otherwise, and one would stop before the
    // others.
    engine.shards.fsdp().broadcast(std::as_writable_bytes(std::span(&token, 1)));
    if (std::find(sampling.stop.begin(), sampling.stop.end(), token) != sampling.stop.end()) break;
    tokens.push_back(token);
    if (on_token) on_token(token);
    input = {token};
  }
  return tokens;
}

}  // namespace finetune::train
