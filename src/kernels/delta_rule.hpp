#pragma once
// SPDX-License-Identifier: Apache-2.0
// The gated delta rule on the CPU: attention with a memory of fixed size, a matrix a head, which
// every token fades, corrects at its key and reads at its query.

#include <cstdint>
#include <span>

#include "kernels/element.hpp"
#include "kernels/memory_run.hpp"

namespace finetune::kernels {

/// Heads, and where what they read lies in a token's row of inputs. Every key head serves
/// `values_per_key` neighbouring value heads.
struct DeltaShape {
  std::int64_t num_key_heads = 0;   ///< Hk
  std::int64_t values_per_key = 1;  ///< R
  std::int64_t key_size = 0;        ///< K, of queries as well
  std::int64_t value_size = 0;      ///< V
  std::int64_t taps = 1;            ///< tokens that the convolution of a channel sees
  /// Of every key head query, key, its values and their gates; behind all of them rates and decays
  /// of every key head. Else each of these of all heads, one after the other.
  bool is_by_key_head = false;
  float norm_eps = 1e-6f;

  std::int64_t num_value_heads() const { return num_key_heads * values_per_key; }
  std::int64_t values() const { return values_per_key * value_size; }  ///< of a key head
  /// What is convolved: queries, keys and values.
  std::int64_t channels() const { return num_key_heads * channels_of_key(); }
  std::int64_t channels_of_key() const { return 2 * key_size + values(); }
  std::int64_t inputs() const { return channels() + num_value_heads() * (value_size + 2); }
  std::int64_t outputs() const { return num_value_heads() * value_size; }

  /// Values of a row of memory: whole vectors of the processor.
  std::int64_t padded_value() const { return (value_size + 15) / 16 * 16; }
  /// fp32 numbers that a text is remembered by: the last taps - 1 rows of channels, and a matrix
  /// [K, padded V] a value head.
  std::int64_t memory_size() const {
    return (taps - 1) * channels() + num_value_heads() * matrix();
  }
  std::int64_t matrix() const { return key_size * padded_value(); }
};

/// With x the convolved channels' SiLU, queries and keys divided by their lengths, queries by
/// sqrt(K) as well: S = e^g S + k (rate (v - (e^g S)^T k))^T, out = norm(S^T q) SiLU(gate), where
/// rate is the sigmoid of its input and g = -e^decay softplus(its input + decay_bias).
/// Source: Yang et al. 2024 (arXiv 2412.06464). T: float or bf16; all arithmetic is in fp32.
template <class T>
struct DeltaRule {
  DeltaShape shape;
  std::span<const MemoryRun> runs;
  const T* x = nullptr;               ///< [N, inputs]
  const float* taps = nullptr;        ///< [channels, taps]: queries', keys', then values' channels
  const float* decay = nullptr;       ///< [value heads], the logarithm
  const float* decay_bias = nullptr;  ///< [value heads]
  const float* norm = nullptr;        ///< [V]
};

template <class T>
struct DeltaRuleForward : DeltaRule<T> {
  T* out = nullptr;  ///< [N, outputs]
};

/// Runs have no memory. What is summed over tokens is written, not added.
template <class T>
struct DeltaRuleBackward : DeltaRule<T> {
  const T* d_out = nullptr;
  T* d_x = nullptr;
  float* d_taps = nullptr;
  float* d_decay = nullptr;
  float* d_decay_bias = nullptr;
  float* d_norm = nullptr;  ///< [key heads, V]: of the value heads of each
};

/// Tokens whose memory a thread has at the same time in its backward pass.
inline constexpr std::int64_t delta_chunk = 64;

/// fp32 numbers that a thread has in its backward pass over samples of `length`: memory before
/// every chunk, and after every token of one.
inline std::int64_t delta_rule_scratch(const DeltaShape& shape, std::int64_t length) {
  const std::int64_t chunks = (length + delta_chunk - 1) / delta_chunk;
  const std::int64_t values = shape.values_per_key * shape.padded_value();
  const std::int64_t of_token = 3 * shape.channels_of_key() + 4 * shape.key_size + 2 * values +
                                2 * shape.padded_value() + 2 + 2 * shape.values_per_key;
  return ((chunks + 2) * shape.values_per_key + delta_chunk + 1) * shape.matrix() +
         delta_chunk * of_token + (4 * shape.taps - 2) * shape.channels_of_key() +
         6 * shape.padded_value();
}

/// Outputs and gradients of a head depend on its own inputs alone, not on threads. Rows that are of
/// no run are left alone.
template <class T>
void delta_rule(const DeltaRuleForward<T>& args);
template <class T>
void delta_rule_backward(const DeltaRuleBackward<T>& args);

}  // namespace finetune::kernels
