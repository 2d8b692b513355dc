#pragma once
// SPDX-License-Identifier: Apache-2.0
// The product with a range of weights, or the sum with biases, and what adapters make of it.

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/ops.hpp"
#include "model/token_travel.hpp"
#include "model/weights.hpp"

namespace finetune::model {

/// What of a product's activations travels, where ranks share its matrices and the tokens of the
/// pass. Source: Korthikanti et al. 2022 (arXiv 2205.05198).
enum class Travels {
  nothing,
  inputs,   ///< matrices split by their outputs: a rank has its own tokens of the input
  outputs,  ///< matrices split by their inputs: it gets its own tokens of the output
};

/// What a product is computed with, in backward too.
struct Projection {
  Weights* weights = nullptr;
  RowRange rows;
  std::optional<DropoutMask> dropout = {};  ///< of what an adapter drops
  Path path = Path::kernels;
  bool uses_adapter = true;
  Travels travels = Travels::nothing;
  std::shared_ptr<const TokenTravel> travel = {};  ///< null: nothing travels
  /// Of the matrices' inputs that this rank has: channels are told apart by their whole numbers.
  std::int64_t first_channel = 0;

  /// What adapters put on top of the weights, if they are used.
  std::vector<AdaptedPart> adapted() const;
  /// Whether backward needs the product's input.
  bool needs_input() const;
};

struct Projected {
  at::Tensor y_NF;
  /// What backward needs in addition to the input: nothing without an adapter, else its own.
  std::vector<at::Tensor> kept;
};

/// x_ND W^T, as the adapter changes it. Collective on the ranks that share its tokens, as is the
/// gradient.
Projected project(const Projection& projection, const at::Tensor& x_ND);

/// dx; adds the gradients of what is trained. `x_ND` may be undefined if it is not needed. An input
/// that was gathered is kept as own tokens, and gathered again here: that is memory of 1 / ranks
/// for one collective more, which runs behind the product that gives dx. The sum over the ranks of
/// dx runs behind the products with the gradients of the weights.
at::Tensor project_backward(const Projection& projection, const at::Tensor& dy_NF,
                            const at::Tensor& x_ND, std::span<const at::Tensor> kept);

/// What a product's backward pass reads and hands over, which may be on their way meanwhile: a
/// product gives its input's gradient first, and asks for the input last.
class InputTravel {
 public:
  /// Begins to gather `x` where it travels.
  InputTravel(const Projection& projection, at::Tensor x);

  /// All tokens [N, D], for the gradients of weights; waits for them the first time.
  const at::Tensor& input();
  /// Takes dx of all tokens [N, D], complete, and sends it off where it travels.
  void give_gradient(at::Tensor dx_ND);
  /// dx: of own tokens where it travelled.
  at::Tensor take_gradient();

 private:
  const TokenTravel* travel_ = nullptr;  ///< null: nothing travels
  at::Tensor x_, dx_;
  std::unique_ptr<Arrival> x_arrives_, dx_arrives_;
};

/// [F]: biases, as the adapter changes them.
at::Tensor bias_of(const Projection& projection);
/// Adds the gradients of what is trained of a sum with `bias_of`.
void bias_backward(const Projection& projection, const at::Tensor& dy_NF);

}  // namespace finetune::model
