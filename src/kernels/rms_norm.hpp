#pragma once
// SPDX-License-Identifier: Apache-2.0
// Root-mean-square normalisation of rows, with the residual addition before it.

#include <span>

#include "kernels/element.hpp"
#include "kernels/place.hpp"

namespace finetune::kernels {

/// y = (weight_offset + weight) * round(h * rstd), rstd = 1 / sqrt(mean(h^2) + epsilon), where h =
/// x or, with a residual, h = round(x + residual). Rounding is to T, as Hugging Face's Llama does.
template <class T>
struct RmsNormForward {
  std::span<const T> x;         ///< [N, D]
  std::span<const T> residual;  ///< [N, D], or empty
  std::span<const T> weight;    ///< [D]
  float epsilon;
  std::span<T> h;         ///< [N, D] if there is a residual, else empty; may be x or residual
  std::span<T> y;         ///< [N, D]; may be x if there is a residual
  std::span<float> rstd;  ///< [N]; D = h's size / N
  float weight_offset = 0;
};

/// dx = gradient of the normalisation with respect to h, plus dresidual if there is one;
/// dweight += its gradient with respect to the weight.
template <class T>
struct RmsNormBackward {
  std::span<const T> dy;         ///< [N, D]
  std::span<const T> h;          ///< [N, D], what was normalised
  std::span<const T> weight;     ///< [D]
  std::span<const float> rstd;   ///< [N]
  std::span<const T> dresidual;  ///< [N, D], or empty
  std::span<T> dx;               ///< [N, D]; may be dy or dresidual
  std::span<float> dweight;      ///< [D], or empty for a frozen weight
  float weight_offset = 0;
};

/// T is float or bf16; arithmetic is fp32. Results do not depend on the number of threads.
/// Throws: ErrorKind::bug if sizes do not fit. Source: Zhang and Sennrich 2019 (arXiv 1910.07467).
template <class T>
void rms_norm(const RmsNormForward<T>& args, const Place& place = {});
template <class T>
void rms_norm_backward(const RmsNormBackward<T>& args, const Place& place = {});

}  // namespace finetune::kernels
