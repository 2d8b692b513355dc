#pragma once
// SPDX-License-Identifier: Apache-2.0
// A state space whose matrices follow the input (Mamba 2), on the CPU: a matrix a head, which every
// token fades, adds to and reads, behind a short convolution and before a gated norm of groups.

#include <cstdint>
#include <limits>
#include <span>

#include "kernels/element.hpp"
#include "kernels/memory_run.hpp"

namespace finetune::kernels {

/// Before every so-many-th token a thread keeps the state for its backward pass.
inline constexpr std::int64_t state_chunk = 64;
/// Tokens whose states it has at the same time: they are to stay in a core's own cache.
inline constexpr std::int64_t state_tokens = 16;

/// Heads of the same sizes. A token's row of inputs has gates [H K], values [H K], what writes
/// [G S], what reads [G S] and steps [H]. Each group of R neighbouring heads shares what writes and
/// what reads, and its outputs are normed together.
struct StateShape {
  std::int64_t num_groups = 0;       ///< G
  std::int64_t heads_per_group = 1;  ///< R
  std::int64_t head_size = 0;        ///< K
  std::int64_t state_size = 0;       ///< S
  std::int64_t taps = 1;             ///< tokens that the convolution of a channel sees
  float least_step = 0;
  float most_step = std::numeric_limits<float>::infinity();
  float norm_eps = 1e-5f;

  std::int64_t num_heads() const { return num_groups * heads_per_group; }  ///< H
  std::int64_t outputs() const { return num_heads() * head_size; }
  std::int64_t outputs_of_group() const { return heads_per_group * head_size; }
  /// Channels of all groups that write, or that read.
  std::int64_t keys() const { return num_groups * state_size; }
  /// What is convolved: values, what writes and what reads.
  std::int64_t channels() const { return outputs() + 2 * keys(); }
  std::int64_t inputs() const { return outputs() + channels() + num_heads(); }

  /// Values of a row of a state: whole vectors of the processor.
  std::int64_t padded_head() const { return (head_size + 15) / 16 * 16; }
  std::int64_t matrix() const { return state_size * padded_head(); }
  /// Of the backward pass: padded S times K.
  std::int64_t padded_state() const { return (state_size + 15) / 16 * 16; }
  std::int64_t turned_matrix() const { return head_size * padded_state(); }
  /// fp32 numbers that a text is remembered by: the last taps - 1 rows of channels, and a matrix
  /// [S, padded K] a head.
  std::int64_t memory_size() const { return (taps - 1) * channels() + num_heads() * matrix(); }

  /// Threads that may share the heads of a group in the backward pass; each has a sum of its own of
  /// what they say of the group's channels.
  std::int64_t teams() const { return heads_per_group < 4 ? heads_per_group : 4; }
};

/// With v, b and c the convolved channels' SiLU (values, what writes, what reads) and
/// step = softplus(its input + step_bias) within the limits:
/// S = e^(-e^decay step) S + b (step v)^T, y = S^T c + skip v, out = norm(y SiLU(gate)).
/// Source: Dao & Gu 2024 (arXiv 2405.21060). T: float or bf16; all arithmetic is in fp32.
template <class T>
struct StateSpace {
  StateShape shape;
  std::span<const MemoryRun> runs;
  const T* x = nullptr;              ///< [N, inputs]
  const float* taps = nullptr;       ///< [channels, taps]
  const float* taps_bias = nullptr;  ///< [channels]
  const float* decay = nullptr;      ///< [H], the logarithm
  const float* step_bias = nullptr;  ///< [H]
  const float* skip = nullptr;       ///< [H]
  const float* norm = nullptr;       ///< [outputs]
  float* mixed = nullptr;            ///< [N, channels], for the way
  float* read = nullptr;             ///< [N, outputs], for the way
};

template <class T>
struct StateSpaceForward : StateSpace<T> {
  T* out = nullptr;  ///< [N, outputs]
};

/// Runs have no memory. What is summed over tokens is written, not added.
template <class T>
struct StateSpaceBackward : StateSpace<T> {
  const T* d_out = nullptr;
  T* d_x = nullptr;
  float* d_keys = nullptr;       ///< [teams, N, 2 G S], for the way
  float* d_taps = nullptr;       ///< [channels, taps]
  float* d_taps_bias = nullptr;  ///< [channels]
  /// [runs, 3, H]: of each run the gradients of decay, step_bias and skip, to be summed.
  float* d_numbers = nullptr;
  float* d_norm = nullptr;  ///< [num_pieces, outputs], to be summed
};

/// Pieces of tokens that the runs are cut into.
inline std::int64_t num_pieces(std::span<const MemoryRun> runs) {
  std::int64_t pieces = 0;
  for (const MemoryRun& run : runs)
    pieces += (run.count + state_chunk - 1) / state_chunk;
  return pieces;
}

/// fp32 numbers that a thread has in its backward pass over samples of `length`: states before
/// every chunk, and on the way through one.
inline std::int64_t state_space_scratch(const StateShape& shape, std::int64_t length) {
  const std::int64_t chunks = (length + state_chunk - 1) / state_chunk;
  return (chunks + state_chunk / state_tokens + state_tokens + 1) * shape.turned_matrix() +
         state_chunk * (shape.padded_head() + 2 * shape.padded_state() + 2) +
         3 * shape.padded_head() + 16 * shape.head_size;
}

/// Outputs and gradients do not depend on threads. Rows that are of no run are left alone; there
/// are `num_rows` of all.
template <class T>
void state_space(const StateSpaceForward<T>& args);
template <class T>
void state_space_backward(const StateSpaceBackward<T>& args, std::int64_t num_rows);

}  // namespace finetune::kernels
