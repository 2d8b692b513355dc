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
  Packing packing = {};
  std::int64_t largest_matrix = 0;  ///< elements
  std::int64_t num_unpacked = 0;    ///< elements that are unpacked to read it
  bool may_have_fp8 = false;        ///< model::may_have_fp8 of its rows
  bool is_of_experts = false;       ///< of which a GPU computes all by one launch

  /// Whether it is there in 8 bits, as products that have them read it.
  bool is_in_fp8() const { return packing.is_operand(); }
  /// Whether a product reads it after it was unpacked.
  bool is_packed(const CostSettings& settings) const {
    return !packing.is_dense() && !(is_in_fp8() && has_fp8(settings));
  }
  /// Whether its product and the gradient of its input have operands of 8 bits.
  bool has_fp8(const CostSettings& settings) const;
  /// Whether backward needs its input.
  bool needs_input() const;
};

/// Of matrices [out, in]. Refers to `table`.
ProjectionShape projection_shape(const ParameterTable& table, RowRange rows);

/// Of the product with `rows` of one expert: its first rows, or those of all in one tensor
/// [E, in, out].
ProjectionShape expert_shape(const ParameterTable& table, RowRange rows, bool is_by_outputs);

/// Which products of a projection with operands of 8 bits are multiplied as such. GPUs multiply all
/// experts of a layer by one launch, which takes e4m3 with a scale per row alone; else it
/// multiplies what the operands stand for (model/detail/fp8_grouped_products.hpp).
struct Fp8Products {
  bool forward = false;
  bool backward = false;
  bool weight_gradient = false;
};
Fp8Products fp8_products(const ProjectionShape& shape, const CostSettings& settings);

/// What products of experts hold next to their outputs, at the worst moment of each, in bytes.
struct ExpertScratch {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  std::int64_t weight_gradient = 0;
};
/// Of `num` experts that have `rows` together. In 8 bits what is quantised and written on the way:
/// of all of them where one launch computes all, else of one. Of narrow floats on the CPU copies of
/// one expert's rows.
ExpertScratch expert_scratch(const ProjectionShape& shape, const CostSettings& settings,
                             std::int64_t rows, std::int64_t num);

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

/// Bytes of the product's matrices with what is written on the way to unpack them, if anything but
/// a product reads them; 0: they are not packed.
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
  double embedding_backward = 0;
  double unpacked = 0;
  double to_fp8 = 0;
  double operations = 1;       ///< calls of the program for one of these
  double norm_operations = 1;  ///< the same of a norm
};
PassBytes pass_bytes(const CostSettings& settings);

}  // namespace finetune::model
