// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/starts.hpp"

#include <ATen/Parallel.h>

#include <cmath>
#include <tuple>

#include "core/error.hpp"
#include "core/random.hpp"

namespace finetune::adapters::lora {
namespace {

/// How a factorisation is associated depends on the threads that compute it.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

at::Tensor orthonormal(const at::Tensor& matrix) {
  return std::get<0>(at::linalg_qr(matrix, "reduced"));
}

struct SingularValues {
  at::Tensor left, values, right;  ///< [out, r], [r], [r, in]
};

/// Halko et al. 2011 (arXiv 0909.4061), algorithm 4.4 with the projection of 5.1.
SingularValues randomised(const at::Tensor& weight, std::int64_t rank, int num_iterations,
                          std::uint64_t seed) {
  const core::RandomKey key(seed, core::RandomUse::weights);
  at::Tensor guesses = at::empty({weight.size(1), rank}, at::kFloat);
  for (std::int64_t i = 0; i < guesses.numel(); ++i)
    guesses.data_ptr<float>()[i] = static_cast<float>(key.normal(static_cast<std::uint64_t>(i)));
  at::Tensor basis = orthonormal(at::mm(weight, guesses));
  for (int i = 0; i < num_iterations; ++i) {
    basis = orthonormal(at::mm(weight.t(), basis));
    basis = orthonormal(at::mm(weight, basis));
  }
  const auto [left, values, right] =
      at::linalg_svd(at::mm(basis.t(), weight), /*full_matrices=*/false);
  return {at::mm(basis, left), values, right};
}

SingularValues exact(const at::Tensor& weight, std::int64_t rank) {
  const auto [left, values, right] = at::linalg_svd(weight, /*full_matrices=*/false);
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
  const OneThread one;
  if (kind.method == StartKind::Method::olora) {
    const auto [q, r] = at::linalg_qr(weight, "reduced");
    return {r.narrow(0, 0, rank).contiguous(), q.narrow(1, 0, rank).contiguous()};
  }
  const SingularValues of = kind.num_iterations > 0
                                ? randomised(weight, rank, kind.num_iterations, seed)
                                : exact(weight, rank);
  // Each side has the root of what the scaled product is to have.
  const at::Tensor roots = (of.values / scale).sqrt();
  return {(roots.unsqueeze(1) * of.right).contiguous(), (of.left * roots).contiguous()};
}

}  // namespace finetune::adapters::lora
