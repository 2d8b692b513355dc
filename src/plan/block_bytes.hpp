#pragma once
// SPDX-License-Identifier: Apache-2.0
// Bytes of a block's tensors, and the most that its passes hold at once.

#include <cstdint>

#include "plan/plan.hpp"
#include "plan/products.hpp"

namespace finetune::plan {

/// The bytes at one moment; what is unpacked of a weight apart.
struct Moment {
  std::int64_t bytes = 0;
  std::int64_t unpacked = 0;

  std::int64_t total() const { return bytes + unpacked; }
};

/// Kernels know fp32 and bf16 on the CPU; the rest is put together from ATen's functions, in fp32.
bool is_composed(const Request& request);

/// Of block `layer`, for all tokens of a pass.
class BlockBytes {
 public:
  BlockBytes(const Request& request, const model::Layer& layer, const BlockProducts& products,
             std::int64_t tokens);

  /// What stays from forward to backward.
  std::int64_t kept() const;
  /// The most at once in addition to what the blocks before it and itself keep.
  Moment worst() const;

 private:
  /// What a product keeps for its own backward, and the moments at which it is made.
  struct Bytes {
    std::int64_t own = 0;       ///< kept in addition to its input
    Moment forward;             ///< in addition to what is kept
    Moment backward;            ///< in addition to its outputs' gradient and what is kept
    std::int64_t input = 0;     ///< its input's, or that input's gradient
    std::int64_t output = 0;    ///< likewise
    std::int64_t unpacked = 0;  ///< its matrices, if they are packed
    bool needs_input = true;
  };
  Bytes bytes_of(const Product& product) const;
  /// An unpacked product with what is made to unpack it.
  std::int64_t unpacking(const Product& product) const;
  /// What dropout of its input adds.
  std::int64_t dropping(const Product& product) const;
  std::int64_t floats_of_reduction(std::int64_t elements) const;

  std::int64_t attention_half() const;
  std::int64_t feed_forward_half() const;
  std::int64_t all() const { return attention_half() + feed_forward_half(); }
  Moment at_experts() const;

  const Request& request_;
  std::int64_t tokens_;
  std::int64_t element_;
  bool recomputes_;
  bool has_experts_;
  bool has_band_ = false;  ///< attends piece by piece: keys' gradients are added in fp32
  Bytes qkv_, attention_out_, gate_up_, down_;
  std::int64_t model_ = 0, queries_ = 0, activated_ = 0;
  std::int64_t head_norm_ = 0;  ///< queries and keys as they were before their norm
  std::int64_t attention_statistics_ = 0, norm_statistics_ = 0;
  std::int64_t composed_swiglu_ = 0;  ///< fp32 temporaries of kernels::composed::swiglu_backward
  std::int64_t copies_ = 0;           ///< of the tokens, one for each expert that one takes
  std::int64_t expert_ = 0;           ///< their activated tensors together
  std::int64_t float_expert_ = 0;
  std::int64_t routing_ = 0;
  std::int64_t unpacked_expert_ = 0;
};

}  // namespace finetune::plan
