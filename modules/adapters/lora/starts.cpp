// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/starts.hpp"

#include <ATen/ATen.h>

#include "core/error.hpp"
#include "core/random.hpp"
#include "model/factors.hpp"

namespace finetune::adapters::lora {
namespace {

using model::SingularValues;

/// [columns, rank], normally distributed.
at::Tensor random_guesses(std::int64_t columns, std::int64_t rank, std::uint64_t seed) {
  const core::RandomKey key(seed, core::RandomUse::weights);
  at::Tensor guesses = at::empty({columns, rank}, at::kFloat);
  for (std::int64_t i = 0; i < guesses.numel(); ++i)
    guesses.data_ptr<float>()[i] = static_cast<float>(key.normal(static_cast<std::uint64_t>(i)));
  return guesses;
}

SingularValues exact(const at::Tensor& weight, std::int64_t rank) {
  const auto [left, values, right] = model::singular_values(weight);
  return {left.narrow(1, 0, rank), values.narrow(0, 0, rank), right.narrow(0, 0, rank)};
}

}  // namespace

std::pair<at::Tensor, at::Tensor> factors_of(const at::Tensor& weight, std::int64_t rank,
                                             double scale, const StartKind& kind,
                                             std::uint64_t seed) {
  if (!at::isfinite(weight).all().item<bool>())
    core::fail(core::ErrorKind::numbers,
               {"adapter.init", "a matrix has numbers that are not finite",
                "it has no factors to begin with", "Check the model's files."});
  if (kind.method == StartKind::Method::olora) {
    const auto [q, r] = model::qr(weight);
    return {r.narrow(0, 0, rank).contiguous(), q.narrow(1, 0, rank).contiguous()};
  }
  const SingularValues of =
      kind.num_iterations > 0
          ? model::largest_singular_values(weight, random_guesses(weight.size(1), rank, seed),
                                           kind.num_iterations)
          : exact(weight, rank);
  // Each side has the root of what the scaled product is to have.
  const at::Tensor roots = (of.values / scale).sqrt();
  return {(roots.unsqueeze(1) * of.right).contiguous(), (of.left * roots).contiguous()};
}

}  // namespace finetune::adapters::lora
