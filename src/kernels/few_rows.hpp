#pragma once
// SPDX-License-Identifier: Apache-2.0
// Products of few rows with a matrix of weights, as when texts are written token by token: bound by
// reading the weights, which libraries for large products read slowly, or rearrange first.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"

namespace finetune::kernels {

/// As many rows as it is made for: more are computed, but slower than by others.
inline constexpr std::int64_t most_few_rows = 32;

/// y = x w^T. x [M, K], w [N, K], y [M, N], T float or bf16. Sums are fp32, in an order that
/// depends on K alone: a row's result does not depend on the others. Reads w once. On the host's
/// threads. Throws: ErrorKind::bug if sizes do not fit.
template <class T>
void few_rows_product(std::span<const T> x, std::span<const T> w, std::span<T> y, std::int64_t m,
                      std::int64_t n, std::int64_t k);

/// The attention of one new token of each of some texts.
template <class T>
struct TokenAttention {
  /// Of a text: where its keys lie, which its values follow, row by row; and which of them are
  /// seen.
  struct Text {
    const T* kept;  ///< [>= last, 2 key_heads * K]
    std::int64_t first, last;
  };
  std::span<const Text> texts;
  const T* q;  ///< [texts, q_stride], the first heads * K of each
  std::int64_t q_stride;
  const float* sinks = nullptr;  ///< [heads]: logits without values, part of the softmax; or null
  T* out;                        ///< [texts, heads * K]
  std::int64_t heads, key_heads, head_size;
};

/// softmax(q k^T / sqrt(K)) v of each head, in fp32, in an order that depends on the text alone. On
/// the host's threads.
template <class T>
void attend_tokens(const TokenAttention<T>& args);

}  // namespace finetune::kernels
