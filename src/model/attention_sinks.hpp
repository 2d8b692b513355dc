#pragma once
// SPDX-License-Identifier: Apache-2.0
// Logits that take part in the softmax of every query of a head, and have no value: what attention
// gave without them is scaled, and its logarithm of the sum of exponentials grows. With that out
// and that logarithm any kernel's backward pass gives the right gradients of q, k and v.
// Source: Xiao et al. 2023 (arXiv 2309.17453), as published with gpt-oss.

#include <ATen/ATen.h>

#include "model/activations.hpp"
#include "model/weights.hpp"

namespace finetune::model {

/// The sinks of a layer on their way to its backward pass.
class Sinks {
 public:
  /// None.
  Sinks() = default;
  /// `weights` outlives this; row -1: none.
  Sinks(Weights& weights, int row) : weights_(&weights), row_(row) {}

  bool exist() const { return row_ >= 0; }

  /// In place: out [B, H, L, K], logsumexp [B, H, L] fp32 with any strides; nothing without sinks.
  void add_to(const at::Tensor& out_BHLK, const at::Tensor& logsumexp_BHL) const;

  /// Terms of the sinks' gradient.
  class Gradient {
   public:
    /// `sinks` outlives this. Frozen ones cost nothing.
    explicit Gradient(const Sinks& sinks);

    /// Adds what some queries cause: `out` and `logsumexp` are with sinks.
    void add(const at::Tensor& d_out_BHLK, const at::Tensor& out_BHLK,
             const at::Tensor& logsumexp_BHL);
    /// Writes the sum to where the row's gradient is.
    void finish() const;

   private:
    const Sinks& sinks_;
    bool is_wanted_;
    at::Tensor sum_H_;
  };

  /// [H] fp32.
  at::Tensor logits_H() const;

 private:
  Weights* weights_ = nullptr;
  int row_ = -1;
};

}  // namespace finetune::model
