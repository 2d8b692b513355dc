// SPDX-License-Identifier: Apache-2.0
#include "model/cost/projection_shape.hpp"

#include <algorithm>

#include "kernels/dropout.hpp"
#include "model/cost/adapter_cost.hpp"

namespace finetune::model {
namespace {

/// What kernels::composed writes next to a matrix that it unpacks in pieces.
constexpr std::int64_t bytes_a_piece_of_nf4 = 13, bytes_a_piece_of_gptq = 16;

void add_row(ProjectionShape& shape, const ParameterTable& table, const Parameter& row) {
  shape.is_trained = row.trainable;
  shape.num_outputs += row.count() / row.shape.back();
  shape.num_inputs = row.shape.back();
  shape.largest_matrix = std::max(shape.largest_matrix, row.count());
  if (!row.packing.is_dense()) shape.packing = row.packing.kind;
  shape.table = &table;
  if (row.adapted.exists()) shape.adapted.push_back(&row);
  shape.may_have_fp8 = may_have_fp8(row);
}

/// What is quantised for a product of `tokens` tokens with the matrix at the worst moment, with the
/// product of `output` bytes at its end. On a GPU it stays until then; elsewhere the operands are
/// written as what they stand for (model/fp8_products.cpp).
std::int64_t fp8_bytes(const ProjectionShape& shape, const CostSettings& settings,
                       std::int64_t tokens, std::int64_t inner, std::int64_t output) {
  const bool is_rowwise = settings.fp8->scaling == Fp8Scaling::rowwise;
  const std::int64_t matrix = shape.num_inputs * shape.num_outputs, input = tokens * inner;
  const auto scales = [&](std::int64_t rows, std::int64_t num_elements) {
    return fp32_bytes * (is_rowwise ? rows : num_elements / fp8_block);
  };
  const std::int64_t of_input = input + scales(tokens, input);
  const std::int64_t of_matrix = matrix + scales(matrix / inner, matrix / fp8_block);
  if (settings.on_gpu) return of_input + of_matrix + output;
  const std::int64_t element = core::size_bytes(settings.compute);
  const std::int64_t of_operands = element * (input + matrix);
  return std::max({of_input + element * input, of_operands + of_matrix, of_operands + output});
}

/// Largest magnitudes are found, then numbers divided and rounded. A CPU writes magnitudes and
/// quotients on the way, and what the operands stand for, times their scales.
double bytes_to_fp8(const CostSettings& settings) {
  const auto e = static_cast<double>(core::size_bytes(settings.compute));
  const double on_gpu = 2 * e + 1;
  return settings.on_gpu ? on_gpu : on_gpu + 4 * e + (1 + e) + 2 * e;
}

/// Calls of the program for it: 2 for the numbers, the rest for their scales.
constexpr double operations_to_fp8 = 12;

}  // namespace

bool ProjectionShape::has_fp8(const CostSettings& settings) const {
  return settings.fp8 && may_have_fp8 && fits_fp8(num_outputs, num_inputs, settings.fp8->scaling);
}

bool ProjectionShape::needs_input() const {
  return is_trained || (!adapted.empty() && adapted.front()->adapted.cost->needs_input(*this));
}

std::int64_t reduction_bytes(const CostSettings& settings, std::int64_t elements) {
  const bool copies = core::size_bytes(settings.compute) < fp32_bytes && !settings.on_gpu;
  return copies ? fp32_bytes * elements : 0;
}

/// Of kernels::composed::dropout: for 8 elements up to 11 random words of 8 bytes, of whole tiles;
/// then a flag each, next to the inputs in fp32 and these scaled.
std::int64_t dropout_bytes(const ProjectionShape& shape, const CostSettings& settings,
                           std::int64_t tokens) {
  if (!settings.is_composed) return 0;
  constexpr std::int64_t bytes_of_random = 11, tile = kernels::dropout_tile;
  const std::int64_t copies = settings.compute == core::DType::f32 ? 1 : 2;
  // Channels of another rank may come first in a tile.
  const auto& split = shape.adapted.front()->split;
  const bool shares_inputs = split && split->dim == 1;
  const std::int64_t before =
      shares_inputs ? settings.share.place.i_tp * shape.num_inputs % tile : 0;
  const std::int64_t random = tokens * ((before + shape.num_inputs + tile - 1) / tile) * tile;
  const std::int64_t bytes =
      std::max(bytes_of_random * random, random + copies * fp32_bytes * tokens * shape.num_inputs);
  return std::min(pieces_bytes, bytes);
}

PassBytes pass_bytes(const CostSettings& settings) {
  const auto e = static_cast<double>(core::size_bytes(settings.compute));
  // Read and write; backward reads the gradient and the input, adds into the residual's. Logits:
  // the largest and the sum; the gradient in place.
  if (!settings.is_composed)
    return {.norm = 2 * e,
            .norm_backward = 4 * e,
            .rope = 2 * e,
            .swiglu = 3 * e,
            .swiglu_backward = 5 * e,
            .logit = 3 * e,
            .unpacked = 0.5 + e,
            .to_fp8 = bytes_to_fp8(settings)};
  // kernels::composed: casts, squares, products, casts back; each reads and writes fp32. Of norms
  // GPUs have one operation.
  const bool is_fused = settings.has_norms;
  return {.norm = 2 * e + (is_fused ? 0 : 24),
          .norm_backward = 4 * e + (is_fused ? 0 : 48),
          .rope = 2 * e + 24,
          .swiglu = 5 * e,
          .swiglu_backward = 5 * e + 36,
          .logit = 3 * e + 20,
          .unpacked = 0.5 + e + 20,
          .to_fp8 = bytes_to_fp8(settings),
          .operations = 8,
          .norm_operations = is_fused ? 1.0 : 8.0};
}

ProjectionShape projection_shape(const ParameterTable& table, RowRange rows) {
  ProjectionShape shape;
  for (int row = rows.first; row < rows.first + rows.num; ++row)
    add_row(shape, table, table.row(row));
  shape.num_unpacked = shape.num_inputs * shape.num_outputs;
  return shape;
}

ProjectionShape expert_shape(const ParameterTable& table, RowRange rows) {
  const Parameter& row = table.row(rows.first);
  if (row.shape.size() == 2) return projection_shape(table, rows);
  ProjectionShape shape;
  add_row(shape, table, row);
  shape.num_inputs = row.shape[1];
  shape.num_outputs = row.shape[2];
  shape.num_unpacked = row.count();
  return shape;
}

std::int64_t unpacked_bytes(const ProjectionShape& shape, const CostSettings& settings) {
  if (!shape.is_packed()) return 0;
  const std::int64_t element = core::size_bytes(settings.compute);
  std::int64_t bytes = element * shape.num_unpacked;
  if (!settings.is_composed) return bytes;
  const bool is_nf4 = shape.packing == Packing::Kind::nf4;
  bytes += std::min(pieces_bytes,
                    (is_nf4 ? bytes_a_piece_of_nf4 : bytes_a_piece_of_gptq) * shape.largest_matrix);
  // One matrix in its own memory, before it goes to its place: in fp32 for fp16's sake.
  if (settings.compute == core::DType::f16) return bytes + fp32_bytes * shape.largest_matrix;
  return bytes + (is_nf4 ? element * shape.largest_matrix : 0);
}

void add_projection_work(const ProjectionShape& shape, const CostSettings& settings, double tokens,
                         double copies, OpWork& forward, OpWork& backward) {
  const auto in = static_cast<double>(shape.num_inputs);
  const auto out = static_cast<double>(shape.num_outputs);
  const bool is_fp8 = shape.has_fp8(settings);
  forward.products.push_back({tokens, out, in, copies, is_fp8});
  backward.products.push_back({tokens, in, out, copies, is_fp8});
  if (shape.is_trained) backward.products.push_back({out, in, tokens, copies});
  const PassBytes of = pass_bytes(settings);
  if (is_fp8) {
    forward.passes.push_back({copies * in * (tokens + out) * of.to_fp8, 2 * operations_to_fp8});
    backward.passes.push_back({copies * out * (tokens + in) * of.to_fp8, 2 * operations_to_fp8});
  }
  if (!shape.is_packed()) return;
  const MemoryPass unpacking = {copies * in * out * of.unpacked, copies * of.operations};
  forward.passes.push_back(unpacking);
  backward.passes.push_back(unpacking);
}

ProjectionCost projection_cost(const ProjectionShape& shape, const CostSettings& settings,
                               std::int64_t tokens, CostTape& tape) {
  const std::int64_t element = core::size_bytes(settings.compute);
  const std::int64_t input = tokens * element * shape.num_inputs;
  const std::int64_t output = tokens * element * shape.num_outputs;
  const std::int64_t unpacked = unpacked_bytes(shape, settings);
  ProjectionCost cost;
  cost.forward = {output, unpacked};
  cost.backward = {input, unpacked};
  if (shape.has_fp8(settings)) {
    cost.forward.bytes = fp8_bytes(shape, settings, tokens, shape.num_inputs, output);
    cost.backward.bytes = fp8_bytes(shape, settings, tokens, shape.num_outputs, input);
  }
  add_projection_work(shape, settings, static_cast<double>(tokens), 1, cost.forward_work,
                      cost.backward_work);
  if (!shape.adapted.empty())
    shape.adapted.front()->adapted.cost->add(shape, settings, tokens, tape, cost);
  return cost;
}

}  // namespace finetune::model
