#pragma once
// SPDX-License-Identifier: Apache-2.0
// What an op costs: the tensors that it keeps, the most that it holds at once, and its work.

#include <cstdint>
#include <optional>
#include <vector>

#include "core/dtype.hpp"
#include "model/detail/basic_ops.hpp"
#include "model/fp8.hpp"
#include "model/part.hpp"

namespace finetune::model {

/// A tensor of which only the size is known. Two with the same number are the same memory.
struct TensorSize {
  int number = -1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t bytes = 0;
};

/// The bytes at one moment; what is unpacked of a weight apart.
struct BytesHeld {
  std::int64_t bytes = 0;
  std::int64_t unpacked = 0;

  std::int64_t total() const { return bytes + unpacked; }
  friend BytesHeld operator+(const BytesHeld& moment, std::int64_t bytes) {
    return {moment.bytes + bytes, moment.unpacked};
  }
};
inline BytesHeld larger(const BytesHeld& a, const BytesHeld& b) {
  return a.total() >= b.total() ? a : b;
}

inline constexpr std::int64_t fp32_bytes = 4;
inline constexpr std::int64_t position_bytes = 8;  ///< of a token, as an index

/// `count` products [rows, inner] x [inner, columns].
struct MatrixProduct {
  double rows = 0;
  double columns = 0;
  double inner = 0;
  double count = 1;
  bool is_fp8 = false;  ///< its operands have 8 bits
};

/// Attention of sequences in which a token sees `visible` tokens on average.
struct AttentionWork {
  double flops = 0;
  double visible = 0;
};

/// What reads and writes so many bytes of activations, in so many calls of the program.
struct MemoryPass {
  double bytes = 0;
  double operations = 0;
};

/// Ranks that exchange activations: those that share matrices, sequences, or experts.
enum class Sharers { tp, cp, ep };

/// Activations that travel among such ranks.
struct Travel {
  enum class Kind { all_gather, reduce_scatter, all_reduce, all_to_all, ring };

  Sharers among = Sharers::tp;
  Kind kind = Kind::all_gather;
  /// What all ranks together have, of a tensor of which each has or gets its part; of an all_to_all
  /// what one rank has for all of them, itself included.
  double bytes = 0;
  /// What is computed meanwhile.
  std::vector<MatrixProduct> beside_products = {};
  std::vector<AttentionWork> beside_attention = {};

  /// By each of `num_ranks` on average. A ring carries everybody's part past everybody else.
  double sent_bytes(std::int64_t num_ranks) const {
    const auto n = static_cast<double>(num_ranks);
    return (kind == Kind::all_reduce ? 2 : 1) * bytes * (n - 1) / n;
  }
};

struct OpWork {
  std::vector<MatrixProduct> products = {};
  std::vector<AttentionWork> attention = {};
  std::vector<MemoryPass> passes = {};
  std::vector<Travel> travels = {};

  /// Adds another's, `times` times.
  void add(const OpWork& other, int times = 1);
};

/// The gradient of an op's input, as its backward pass returns it.
struct InputGradient {
  int of = -1;             ///< number of the input
  std::int64_t bytes = 0;  ///< 0: the memory is that of another gradient
};

struct OpCost {
  std::vector<TensorSize> inputs = {};
  std::vector<TensorSize> kept =
      {};  ///< from forward to backward; inputs and outputs may be among them
  /// Bytes at the moments that may be the worst, in addition to what is kept or will be read: of
  /// forward with its outputs, of backward with the gradients that it returns.
  std::vector<BytesHeld> forward = {};
  std::vector<BytesHeld> backward = {};
  std::vector<InputGradient> gradients = {};
  std::vector<int> outputs = {};
  OpWork forward_work = {};
  OpWork backward_work = {};
  OpWork again_work = {};  ///< of the forward pass, in backward (`Recompute`)
};

/// How ranks that share a sequence get at each other's keys and values.
enum class KeyTravel { automatic, ring, gather };

/// What the rank whose costs are counted shares with others.
struct RankShare {
  PartPlace place = {};  ///< the table is the part of it (model::part_of)
  std::int64_t cp = 1;   ///< ranks that share every sequence
  KeyTravel keys = KeyTravel::automatic;

  bool is_whole() const { return place.is_whole() && cp == 1; }
  std::int64_t size(Sharers among) const {
    return among == Sharers::tp ? place.tp : among == Sharers::cp ? cp : place.ep;
  }
};

/// How ops are computed, as far as their cost depends on it.
struct CostSettings {
  core::DType compute = core::DType::bf16;
  /// Passes are put together from ATen's functions, in fp32: on GPUs, and of fp16.
  bool is_composed = false;
  bool has_norms = false;  ///< but for norms, of which GPUs have one operation
  bool on_gpu = false;
  Recompute recompute = Recompute::nothing;
  double dropout = 0;  ///< of the inputs that an adapter drops
  std::optional<Fp8Recipe> fp8 = {};
  RankShare share = {};
};

}  // namespace finetune::model
