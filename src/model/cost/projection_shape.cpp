// SPDX-License-Identifier: Apache-2.0
#include "model/cost/projection_shape.hpp"

#include <algorithm>

#include "kernels/dropout.hpp"
#include "model/cost/adapter_cost.hpp"
#include "model/detail/common_row_count.hpp"

namespace finetune::model {
namespace {

/// What kernels::composed writes next to a matrix that it unpacks in pieces. To fp32 NF4's levels
/// are multiplied in place: indices of 4 bytes for two elements, and levels.
constexpr std::int64_t bytes_a_piece_of_nf4 = 13, bytes_a_piece_of_wide_nf4 = 6;
constexpr std::int64_t bytes_a_piece_of_gptq = 16;

void add_row(ProjectionShape& shape, const ParameterTable& table, const Parameter& row) {
  shape.is_trained = row.trainable;
  shape.num_outputs += row.count() / row.shape.back();
  shape.num_inputs = row.shape.back();
  shape.largest_matrix = std::max(shape.largest_matrix, row.count());
  if (!row.packing.is_dense()) shape.packing = row.packing;
  if (!row.published.is_dense()) shape.packing = row.published;
  shape.table = &table;
  if (row.adapted.exists()) shape.adapted.push_back(&row);
  shape.may_have_fp8 = may_have_fp8(row);
}

/// What is quantised at the worst moment of a product of `tokens` tokens with the matrix, with the
/// product of `output` bytes at its end. On a GPU it stays until then; elsewhere the operands are
/// written as what they stand for (model/fp8_products.cpp).
struct Fp8Bytes {
  Fp8Bytes(const ProjectionShape& shape, const CostSettings& settings, std::int64_t tokens)
      : is_rowwise(settings.fp8->scaling == Fp8Scaling::rowwise),
        on_gpu(settings.on_gpu),
        element(core::size_bytes(settings.compute)),
        tokens(tokens),
        matrix(shape.num_inputs * shape.num_outputs) {
    const std::int64_t scales =
        fp32_bytes * (is_rowwise ? shape.num_outputs : matrix / (fp8_block * fp8_block));
    if (!shape.is_in_fp8()) quantised = matrix + scales;
  }

  std::int64_t of_tokens(std::int64_t inner) const {
    const std::int64_t scales = is_rowwise ? tokens : tokens * inner / fp8_block;
    return tokens * inner + fp32_bytes * scales;
  }
  std::int64_t on_cpu(std::int64_t inner, std::int64_t output, std::int64_t beside) const {
    const std::int64_t of_input = of_tokens(inner), input = element * tokens * inner;
    const std::int64_t of_matrix = element * matrix;
    return std::max({quantised + of_matrix, of_matrix + beside + of_input,
                     of_matrix + beside + of_input + input, of_matrix + input + beside + output});
  }
  std::int64_t forward(const ProjectionShape& shape, std::int64_t output) const {
    if (!on_gpu) return on_cpu(shape.num_inputs, output, 0);
    return quantised + of_tokens(shape.num_inputs) + output;
  }
  /// A GPU reads the matrix transposed; scales of rows become part of a copy of the gradient.
  std::int64_t backward(const ProjectionShape& shape, std::int64_t output) const {
    const std::int64_t beside = is_rowwise ? element * tokens * shape.num_outputs : 0;
    if (!on_gpu) return on_cpu(shape.num_outputs, output, beside);
    const std::int64_t of_input = of_tokens(shape.num_outputs);
    return std::max(quantised + matrix, matrix + beside + of_input + output);
  }

  /// Next to the gradient of the input, `output` bytes.
  std::int64_t weight_gradient(const ProjectionShape& shape, Fp8Scaling scaling,
                               std::int64_t output) const {
    const std::int64_t all = fp8_padded_tokens(tokens, scaling);
    const std::int64_t pad = all > tokens ? 1 : 0;
    const std::int64_t x = all * shape.num_inputs, dy = all * shape.num_outputs;
    const std::int64_t scales_x =
        fp32_bytes * (is_rowwise ? shape.num_inputs : x / (fp8_block * fp8_block));
    const std::int64_t scales_dy = fp32_bytes * (is_rowwise ? shape.num_outputs : dy / fp8_block);
    const std::int64_t padded = pad * element * (x + dy);
    if (on_gpu) return output + padded + x + scales_x + dy + scales_dy;
    const std::int64_t of_x = element * x, of_dy = element * dy;
    return output + padded + std::max(x + scales_x + of_x, of_x + dy + scales_dy + of_dy);
  }

  bool is_rowwise;
  bool on_gpu;
  std::int64_t element;
  std::int64_t tokens;
  std::int64_t matrix;
  std::int64_t quantised = 0;
};

/// Largest magnitudes are found, then numbers divided and rounded. A CPU writes magnitudes and
/// quotients on the way, and what the operands stand for, times their scales.
double bytes_to_fp8(const CostSettings& settings) {
  const auto e = static_cast<double>(core::size_bytes(settings.compute));
  const double on_gpu = 2 * e + 1;
  return settings.on_gpu ? on_gpu : on_gpu + 4 * e + (1 + e) + 2 * e;
}

/// Calls of the program for it: 2 for the numbers, the rest for their scales.
constexpr double operations_to_fp8 = 12;

/// Experts that are there in 8 bits lie at one distance. GPUs that do not have the kernel are
/// counted with those that do.
bool computes_together(const ProjectionShape& shape, const CostSettings& settings) {
  return shape.is_of_experts && shape.is_in_fp8() && settings.on_gpu;
}

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
  // the largest and the sum; the gradient in place. Of an embedding rows are added to.
  if (!settings.is_composed)
    return {.norm = 2 * e,
            .norm_backward = 4 * e,
            .rope = 2 * e,
            .swiglu = 3 * e,
            .swiglu_backward = 5 * e,
            .logit = 3 * e,
            .embedding_backward = 3 * e,
            .unpacked = 0.5 + e,
            .to_fp8 = bytes_to_fp8(settings)};
  // kernels::composed on GPUs, as counted where it runs: tests/simulated/traffic_test.cpp.
  if (settings.has_norms)
    return {.norm = 2 * e,
            .norm_backward = 6 * e,
            .rope = 4 * e + 17,
            .swiglu = 3 * e + 16,
            .swiglu_backward = 5 * e + 40,
            .logit = 3 * e + 32,
            .embedding_backward = 7 * e + 44,
            .unpacked = 0.5 + e + 12,
            .to_fp8 = bytes_to_fp8(settings),
            .operations = 8,
            .norm_operations = 1};
  // What programs do whose passes are put together from operations, and ours in fp16 on CPUs: set
  // by published speeds, tests/unit/plan/published_rows.hpp.
  return {.norm = 2 * e + 24,
          .norm_backward = 4 * e + 48,
          .rope = 2 * e + 24,
          .swiglu = 5 * e,
          .swiglu_backward = 5 * e + 36,
          .logit = 3 * e + 20,
          .embedding_backward = 2 * e + 8,
          .unpacked = 0.5 + e + 20,
          .to_fp8 = bytes_to_fp8(settings),
          .operations = 8,
          .norm_operations = 8};
}

ProjectionShape projection_shape(const ParameterTable& table, RowRange rows) {
  ProjectionShape shape;
  for (int row = rows.first; row < rows.first + rows.num; ++row)
    add_row(shape, table, table.row(row));
  shape.num_unpacked = shape.num_inputs * shape.num_outputs;
  return shape;
}

ProjectionShape expert_shape(const ParameterTable& table, RowRange rows, bool is_by_outputs) {
  const Parameter& row = table.row(rows.first);
  ProjectionShape shape;
  if (row.shape.size() == 2) {
    shape = projection_shape(table, rows);
    shape.is_of_experts = true;
    return shape;
  }
  add_row(shape, table, row);
  shape.num_inputs = row.shape[is_by_outputs ? 2 : 1];
  shape.num_outputs = row.shape[is_by_outputs ? 1 : 2];
  shape.num_unpacked = row.count();
  return shape;
}

namespace {

/// GPUs that compute all experts together unpack all of them, others one after the other. Next to
/// the numbers: what a composition writes on the way, and what half is made from.
std::int64_t unpacked_mxfp4(const ProjectionShape& shape, const CostSettings& settings) {
  constexpr std::int64_t bytes_an_element = 6;
  const bool is_whole = settings.on_gpu && settings.compute == core::DType::bf16;
  const std::int64_t elements =
      is_whole ? shape.num_unpacked : shape.num_inputs * shape.num_outputs;
  std::int64_t bytes = core::size_bytes(settings.compute) * elements;
  if (settings.is_composed || settings.on_gpu)
    bytes += std::min(pieces_bytes, bytes_an_element * elements);
  return bytes + (settings.compute == core::DType::f16 ? fp32_bytes * elements : 0);
}

/// Of integers and NVFP4, which a kernel of the CPU alone unpacks. Next to the numbers, as above.
std::int64_t unpacked_rows(const ProjectionShape& shape, const CostSettings& settings) {
  constexpr std::int64_t bytes_an_element = 6;
  const bool is_wide = settings.compute == core::DType::f16;
  std::int64_t bytes = core::size_bytes(settings.compute) * shape.num_unpacked;
  if (settings.is_composed || settings.on_gpu || is_wide)
    bytes += std::min(pieces_bytes, bytes_an_element * shape.largest_matrix);
  return bytes + (is_wide ? fp32_bytes * shape.largest_matrix : 0);
}

}  // namespace

std::int64_t unpacked_bytes(const ProjectionShape& shape, const CostSettings& settings) {
  if (shape.packing.is_dense()) return 0;
  if (shape.packing.kind == Packing::Kind::mxfp4) return unpacked_mxfp4(shape, settings);
  if (shape.packing.kind == Packing::Kind::integers || shape.packing.kind == Packing::Kind::nvfp4)
    return unpacked_rows(shape, settings);
  const std::int64_t element = core::size_bytes(settings.compute);
  std::int64_t bytes = element * shape.num_unpacked;
  if (shape.packing.kind == Packing::Kind::fp8 && shape.packing.in_files)
    return bytes + std::min(pieces_bytes, fp32_bytes * shape.largest_matrix);
  if (!settings.is_composed || shape.is_in_fp8()) return bytes;
  const bool is_nf4 = shape.packing.kind == Packing::Kind::nf4;
  // One matrix in its own memory, before it goes to its place: in fp32 for fp16's sake.
  const bool is_wide = settings.compute == core::DType::f16;
  const std::int64_t a_piece = !is_nf4   ? bytes_a_piece_of_gptq
                               : is_wide ? bytes_a_piece_of_wide_nf4
                                         : bytes_a_piece_of_nf4;
  bytes += std::min(pieces_bytes, a_piece * shape.largest_matrix);
  if (is_wide) return bytes + fp32_bytes * shape.largest_matrix;
  return bytes + (is_nf4 ? element * shape.largest_matrix : 0);
}

Fp8Products fp8_products(const ProjectionShape& shape, const CostSettings& settings) {
  if (!shape.has_fp8(settings)) return {};
  const Fp8Recipe& recipe = *settings.fp8;
  const bool are_together = computes_together(shape, settings);
  const bool is_rowwise = recipe.scaling == Fp8Scaling::rowwise;
  return {.forward = !are_together || is_rowwise,
          .backward = !are_together || (is_rowwise && recipe.gradients == Fp8Gradients::e4m3),
          .weight_gradient = recipe.weight_gradients};
}

namespace {

/// The CPU copies rows of the last expert of a product of narrow floats, of which it computes a few
/// more than there are (product_of_common_rows), and of both factors of its gradient.
ExpertScratch common_rows_scratch(const ProjectionShape& shape, const CostSettings& settings,
                                  std::int64_t of_one) {
  const std::int64_t common = common_row_count(of_one);
  if (settings.on_gpu || settings.compute == core::DType::f32 || common == of_one) return {};
  const std::int64_t bytes =
      common * (shape.num_inputs + shape.num_outputs) * core::size_bytes(settings.compute);
  return {bytes, bytes, shape.is_trained ? bytes : 0};
}

}  // namespace

ExpertScratch expert_scratch(const ProjectionShape& shape, const CostSettings& settings,
                             std::int64_t rows, std::int64_t num) {
  const auto all_of = [&](std::int64_t tokens) { return Fp8Bytes(shape, settings, tokens); };
  const std::int64_t active = std::max<std::int64_t>(1, std::min(num, rows));
  const std::int64_t of_one = (rows + active - 1) / active;
  if (!shape.has_fp8(settings)) return common_rows_scratch(shape, settings, of_one);
  const std::int64_t element = core::size_bytes(settings.compute);
  const std::int64_t input = element * shape.num_inputs, output = element * shape.num_outputs;
  ExpertScratch scratch;
  if (shape.is_trained && settings.fp8->weight_gradients)
    scratch.weight_gradient = all_of(of_one).weight_gradient(shape, settings.fp8->scaling, 0) +
                              element * shape.num_inputs * shape.num_outputs;
  if (!computes_together(shape, settings)) {
    scratch.forward = all_of(of_one).forward(shape, of_one * output);
    scratch.backward = all_of(of_one).backward(shape, of_one * input);
    return scratch;
  }
  const Fp8Products products = fp8_products(shape, settings);
  const bool is_rowwise = settings.fp8->scaling == Fp8Scaling::rowwise;
  const Fp8Bytes all = all_of(rows);
  // Or what the operands stand for.
  const std::int64_t matrices = num * element * all.matrix;
  scratch.forward = all.of_tokens(shape.num_inputs);
  if (!products.forward) scratch.forward += rows * input + matrices;
  scratch.backward = all.of_tokens(shape.num_outputs) + (is_rowwise ? rows * output : 0);
  scratch.backward += products.backward ? num * all.matrix : rows * output + matrices;
  return scratch;
}

namespace {

/// What is done to operands of 8 bits. A GPU that computes all experts together does it to all of
/// them in so many calls, others to one after the other.
void add_fp8_passes(const ProjectionShape& shape, const CostSettings& settings, double tokens,
                    double copies, OpWork& forward, OpWork& backward) {
  const auto in = static_cast<double>(shape.num_inputs);
  const auto out = static_cast<double>(shape.num_outputs);
  const auto e = static_cast<double>(core::size_bytes(settings.compute));
  const double to_fp8 = pass_bytes(settings).to_fp8;
  const double times = computes_together(shape, settings) ? 1 : copies;
  const Fp8Products products = fp8_products(shape, settings);
  // Where the matrix is not there in 8 bits, it is quantised for both products.
  const double matrices = shape.is_in_fp8() ? 0 : 1;
  const double operations = times * (1 + matrices) * operations_to_fp8;
  forward.passes.push_back({copies * in * (tokens + matrices * out) * to_fp8, operations});
  backward.passes.push_back({copies * out * (tokens + matrices * in) * to_fp8, operations});
  // Both operands, with scales along tokens.
  if (shape.is_trained && products.weight_gradient)
    backward.passes.push_back(
        {copies * tokens * (in + out) * to_fp8, copies * 2 * operations_to_fp8});
  // Gradients times the scales of rows; on a GPU, the matrix transposed.
  if (settings.fp8->scaling == Fp8Scaling::rowwise)
    backward.passes.push_back({copies * tokens * out * 2 * e, times});
  if (settings.on_gpu && products.backward)
    backward.passes.push_back({copies * in * out * 2, times});
  // What the matrix, and on a GPU tokens, stand for, times their scales.
  const double widened = 1 + 3 * e, there = shape.is_in_fp8() ? 1 : 0;
  const auto widen = [&](OpWork& work, double of_tokens) {
    const double elements = settings.on_gpu ? of_tokens + in * out : there * in * out;
    if (elements > 0) work.passes.push_back({copies * elements * widened, 2 * times});
  };
  if (!settings.on_gpu || !products.forward) widen(forward, tokens * in);
  if (!settings.on_gpu || !products.backward) widen(backward, tokens * out);
}

}  // namespace

void add_projection_work(const ProjectionShape& shape, const CostSettings& settings, double tokens,
                         double copies, OpWork& forward, OpWork& backward) {
  const auto in = static_cast<double>(shape.num_inputs);
  const auto out = static_cast<double>(shape.num_outputs);
  const Fp8Products fp8 = fp8_products(shape, settings);
  forward.products.push_back({tokens, out, in, copies, fp8.forward});
  backward.products.push_back({tokens, in, out, copies, fp8.backward});
  if (shape.is_trained) backward.products.push_back({out, in, tokens, copies, fp8.weight_gradient});
  const PassBytes of = pass_bytes(settings);
  if (shape.has_fp8(settings)) add_fp8_passes(shape, settings, tokens, copies, forward, backward);
  if (!shape.is_packed(settings)) return;
  const MemoryPass unpacking = {copies * in * out * of.unpacked, copies * of.operations};
  forward.passes.push_back(unpacking);
  backward.passes.push_back(unpacking);
}

ProjectionCost projection_cost(const ProjectionShape& shape, const CostSettings& settings,
                               std::int64_t tokens, CostTape& tape) {
  const std::int64_t element = core::size_bytes(settings.compute);
  const std::int64_t input = tokens * element * shape.num_inputs;
  const std::int64_t output = tokens * element * shape.num_outputs;
  const std::int64_t unpacked = shape.is_packed(settings) ? unpacked_bytes(shape, settings) : 0;
  ProjectionCost cost;
  cost.forward = {output, unpacked};
  cost.backward = {input, unpacked};
  if (shape.has_fp8(settings)) {
    const Fp8Bytes of(shape, settings, tokens);
    cost.forward.bytes = of.forward(shape, output);
    cost.backward.bytes = of.backward(shape, input);
    if (shape.is_trained && settings.fp8->weight_gradients)
      cost.backward.bytes =
          std::max(cost.backward.bytes, of.weight_gradient(shape, settings.fp8->scaling, input));
  }
  add_projection_work(shape, settings, static_cast<double>(tokens), 1, cost.forward_work,
                      cost.backward_work);
  if (!shape.adapted.empty())
    shape.adapted.front()->adapted.cost->add(shape, settings, tokens, tape, cost);
  return cost;
}

}  // namespace finetune::model
