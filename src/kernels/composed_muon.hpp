#pragma once
// SPDX-License-Identifier: Apache-2.0
// The parts of a Muon step, put together from ATen operations; on any device.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "kernels/rounding.hpp"

namespace finetune::kernels::composed {

struct MuonNumbers {
  double lr;    ///< of the decay
  double rate;  ///< of the orthogonal matrix: lr, adjusted to its shape
  double momentum, weight_decay;
  double gradient_scale = 1.0;
  std::optional<RoundingKey> rounding = {};  ///< of what is bf16; without: to nearest
  std::int64_t index = 0;                    ///< of the first element, over the whole model
};

/// exp_avg = momentum exp_avg + (1 - momentum) g, in place, and what is made orthogonal, with
/// Nesterov's look ahead: momentum exp_avg + (1 - momentum) g, fp32 [N]. Each operation is rounded
/// as written: any cut of the parameters into calls gives identical bits.
at::Tensor muon_direction_(at::Tensor& exp_avg, const at::Tensor& gradient,
                           const MuonNumbers& numbers);

/// Five steps of a quintic Newton-Schulz iteration towards U V^T of the matrix U S V^T, fp32 [A, B]
/// -> [A, B]: singular values come to lie about between 0.7 and 1.2. In fp32, where
/// torch.optim.Muon rounds to bf16. Sources: Jordan et al. 2024, "Muon: an optimizer for hidden
/// layers in neural networks", and its coefficients; Bernstein & Newhouse 2024 (arXiv 2409.20325).
/// On the CPU any number of threads gives identical bits.
at::Tensor newton_schulz(const at::Tensor& matrix_AB);

/// weight = (1 - lr weight_decay) weight - rate * orthogonal, in place; bits as above.
void muon_step_(at::Tensor& weight, const at::Tensor& orthogonal, const MuonNumbers& numbers);

}  // namespace finetune::kernels::composed
