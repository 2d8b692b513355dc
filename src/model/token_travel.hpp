#pragma once
// SPDX-License-Identifier: Apache-2.0
// How activations travel between ranks that share the tokens of a pass: sequence parallelism, as
// products see it. `shard` supplies it.

#include <ATen/ATen.h>

#include <memory>

namespace finetune::model {

/// Activations on their way. `wait` is called once, by whoever started them.
class Arrival {
 public:
  virtual ~Arrival() = default;
  virtual at::Tensor wait() = 0;
};

/// Letters: N tokens of a pass, n of them this rank's own. Collective on the ranks that share the
/// tokens, in the same order on all of them.
class TokenTravel {
 public:
  virtual ~TokenTravel() = default;

  /// Own tokens -> all of them. Shapes: [n, D] -> [N, D].
  virtual std::unique_ptr<Arrival> gather(const at::Tensor& own_nD) const = 0;
  /// Terms of all tokens -> their sums over the ranks, of own tokens, in the terms' dtype.
  /// Shapes: [N, D] -> [n, D].
  virtual std::unique_ptr<Arrival> scatter(const at::Tensor& terms_ND) const = 0;
  /// Sums over the ranks, the same on each; fp32.
  virtual at::Tensor sum(const at::Tensor& terms) const = 0;
};

}  // namespace finetune::model
