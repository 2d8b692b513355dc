#pragma once
// SPDX-License-Identifier: Apache-2.0
// A product with a range of neighbouring weights, as model::Projection computes it, by what the
// table says of them: what is trained, what adapters add, what is unpacked for it.

#include <cstdint>
#include <vector>

#include "model/cost/cost.hpp"
#include "model/cost/detail/cost_tape.hpp"
#include "model/parameter_table.hpp"

namespace finetune::model {

struct ProjectionShape {
  bool is_trained = true;
  const ParameterTable* table = nullptr;
  std::vector<const Parameter*> adapted = {};  ///< those of its matrices that an adapter changes
  std::int64_t num_inputs = 0;
  std::int64_t num_outputs = 0;
  Packing::Kind packing = Packing::Kind::dense;
  std::int64_t largest_matrix = 0;  ///< elements
  std::int64_t num_unpacked = 0;    ///< elements that are unpacked to read it
  bool may_have_fp8 = false;        ///< model::may_have_fp8 of its rows

  bool is_packed() const { return packing != Packing::Kind::dense; }
  /// Whether its product and the gradient of its input have operands of 8 bits.
  bool has_fp8(const CostSettings& settings) const;
  /// Whether backward needs its input.
  bool needs_input() const;
};

/// Of matrices [out, in]. Refers to `table`.
ProjectionShape projection_shape(const ParameterTable& table, RowRange rows);

/// Of the product with `rows` of one expert: its first rows, or those of all in one tensor
/// [E, in, out].
ProjectionShape expert_shape(const ParameterTable& table, RowRange rows);

/// What a projection of `tokens` tokens costs.
struct ProjectionCost {
  std::vector<TensorSize> kept;  ///< in addition to its input
  BytesHeld forward;             ///< with its output
  BytesHeld backward;            ///< with its input's gradient
  OpWork forward_work;
  OpWork backward_work;
};

/// Its tensors are made on `tape`; nothing is recorded there.
ProjectionCost projection_cost(const ProjectionShape& shape, const CostSettings& settings,
                               std::int64_t tokens, CostTape& tape);

/// Adds the work of `copies` projections of `tokens` tokens each, without what adapters do.
void add_projection_work(const ProjectionShape& shape, const CostSettings& settings, double tokens,
                         double copies, OpWork& forward, OpWork& backward);

/// Bytes of the product's matrices with what is written on the way to unpack them; 0: not packed.
std::int64_t unpacked_bytes(const ProjectionShape& shape, const CostSettings& settings);

/// What kernels::composed writes, at most, next to what it works on in pieces.
inline constexpr std::int64_t pieces_bytes = std::int64_t{64} << 20;

/// ATen's reductions to fp32 of `elements` read a copy in fp32 on the CPU.
std::int64_t reduction_bytes(const CostSettings& settings, std::int64_t elements);

/// What dropout of the inputs writes next to its result, for a product with an adapter.
std::int64_t dropout_bytes(const ProjectionShape& shape, const CostSettings& settings,
                           std::int64_t tokens);

/// Bytes that pass the memory for each element of what a pass computes.
struct PassBytes {
  double norm = 0;
  double norm_backward = 0;
  double rope = 0;
  double swiglu = 0;
  double swiglu_backward = 0;
  double logit = 0;
  double unpacked = 0;
  double to_fp8 = 0;
  double operations = 1;       ///< calls of the program for one of these
  double norm_operations = 1;  ///< the same of a norm
};
PassBytes pass_bytes(const CostSettings& settings);

}  // namespace finetune::model
