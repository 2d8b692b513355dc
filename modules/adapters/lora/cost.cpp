// SPDX-License-Identifier: Apache-2.0
#include "adapters/lora/cost.hpp"

#include <algorithm>

#include "adapters/lora/parts.hpp"
#include "model/cost/adapter_cost.hpp"
#include "model/cost/cost.hpp"
#include "model/cost/projection_shape.hpp"

namespace finetune::adapters::lora {
namespace {

using model::CostSettings;
using model::fp32_bytes;
using model::ProjectionCost;
using model::ProjectionShape;

/// Of the matrices of one product that have low-rank parts.
struct Sizes {
  explicit Sizes(const ProjectionShape& shape) {
    for (const model::Parameter* row : shape.adapted) {
      ++num_parts;
      rank += shape.table->row(row->adapted.parts[LowRank::a]).shape.front();
      has_magnitudes = has_magnitudes || LowRank::has_magnitude(row->adapted);
      has_starts = has_starts || LowRank::has_start(row->adapted);
    }
  }

  std::int64_t num_parts = 0;
  std::int64_t rank = 0;  ///< of all of them together
  bool has_magnitudes = false;
  bool has_starts = false;
};

/// x A and (x A) B, added to what is there; backward the gradients of both matrices and of x.
void add_work(const ProjectionShape& shape, const Sizes& sizes, const CostSettings& settings,
              double tokens, ProjectionCost& cost) {
  const auto element = static_cast<double>(core::size_bytes(settings.compute));
  const auto parts = static_cast<double>(sizes.num_parts);
  const auto rank = static_cast<double>(sizes.rank);
  const auto in = static_cast<double>(shape.num_inputs);
  const double out = static_cast<double>(shape.num_outputs) / parts;
  model::OpWork products;
  products.products = {{tokens, rank, in, 1}, {tokens, out, rank / parts, parts}};
  // What they began with is multiplied as well, and has no gradient.
  cost.forward_work.add(products, sizes.has_starts ? 2 : 1);
  cost.backward_work.add(products, sizes.has_starts ? 3 : 2);
  cost.forward_work.passes.push_back({tokens * out * parts * 2 * element, parts});
  cost.backward_work.passes.push_back({tokens * in * 2 * element, 1});
  if (settings.dropout <= 0) return;
  model::OpWork drop;
  drop.passes = {{tokens * in * (2 * element + 1), model::pass_bytes(settings).operations}};
  cost.forward_work.add(drop);
  cost.backward_work.add(drop, 2);
}

class LowRankCost final : public model::AdapterCost {
 public:
  bool needs_input(const ProjectionShape&) const override { return true; }

  void add(const ProjectionShape& shape, const CostSettings& settings, std::int64_t tokens,
           model::CostTape& tape, ProjectionCost& cost) const override {
    const Sizes sizes(shape);
    add_work(shape, sizes, settings, static_cast<double>(tokens), cost);
    const std::int64_t element = core::size_bytes(settings.compute);
    const std::int64_t input = tokens * element * shape.num_inputs;
    const std::int64_t low = tokens * element * sizes.rank;
    cost.kept.push_back(tape.tensor(tokens, sizes.rank, element));
    cost.backward.bytes += low;
    if (sizes.has_starts) {
      cost.forward.bytes += low;
      cost.backward.bytes += low;
    }
    if (settings.dropout > 0) {
      // A's input with parts of it dropped; then the gradient of the product's input, that of A's
      // input, and what dropout leaves of it.
      const std::int64_t beside = model::dropout_bytes(shape, settings, tokens);
      cost.forward.bytes += input + beside;
      cost.backward = model::larger(cost.backward, {low + 3 * input + beside, 0});
    }
    if (sizes.has_magnitudes) add_magnitudes(shape, settings, tokens, tape, cost);
  }

  /// What the experts' rows become, and the B of all, put in order: twice with their gradients, and
  /// once more where these are put back.
  OfExperts of_experts(const ProjectionShape& shape, const CostSettings& settings,
                       std::int64_t rows, std::int64_t num) const override {
    const std::int64_t element = core::size_bytes(settings.compute);
    const std::int64_t rank = Sizes(shape).rank / std::ssize(shape.adapted) / num;
    const std::int64_t low = rows * rank * element;
    const std::int64_t outputs = num * rank * shape.num_outputs * element;
    const std::int64_t inputs = num * rank * shape.num_inputs * element;
    OfExperts cost{.forward = low + outputs,
                   .backward = low + outputs,
                   .gradients = std::max(low + 2 * outputs + inputs, 3 * outputs + inputs)};
    const auto m = static_cast<double>(rows), r = static_cast<double>(rank);
    const auto in = static_cast<double>(shape.num_inputs);
    const auto out = static_cast<double>(shape.num_outputs);
    const model::MemoryPass ordering = {2 * static_cast<double>(outputs), 1};
    cost.forward_work.products = {{m, r, in, 1}, {m, out, r, 1}};
    cost.forward_work.passes = {ordering};
    cost.backward_work.products = {{m, r, out, 1}, {m, in, r, 1},  {m, r, in, 1},
                                   {m, r, out, 1}, {out, r, m, 1}, {r, in, m, 1}};
    cost.backward_work.passes = {ordering, ordering, ordering};
    return cost;
  }

  /// The columns of A that tokens have, and their gradients, with those of all columns.
  void add_to_embedding(const ProjectionShape& shape, const CostSettings& settings,
                        std::int64_t tokens, ProjectionCost& cost) const override {
    const Sizes sizes(shape);
    const std::int64_t element = core::size_bytes(settings.compute);
    const std::int64_t low = tokens * element * sizes.rank;
    const std::int64_t table = shape.num_outputs * element * sizes.rank;
    cost.forward.bytes += low;
    cost.backward = model::larger(cost.backward, {low + table, 0});
    const auto n = static_cast<double>(tokens), rank = static_cast<double>(sizes.rank);
    const auto width = static_cast<double>(shape.num_inputs);
    cost.forward_work.products.push_back({n, width, rank, 1});
    cost.forward_work.passes.push_back({3 * static_cast<double>(low), 2});
    cost.backward_work.products = {{width, rank, n, 1}, {n, rank, width, 1}};
    cost.backward_work.passes.push_back(
        {6 * static_cast<double>(low) + 4 * static_cast<double>(table), 5});
  }

 private:
  static void add_magnitudes(const ProjectionShape& shape, const CostSettings& settings,
                             std::int64_t tokens, model::CostTape& tape, ProjectionCost& cost) {
    const std::int64_t element = core::size_bytes(settings.compute);
    const std::int64_t output = tokens * element * shape.num_outputs;
    // The sum before it is scaled stays; backward scales a copy of the outputs' gradient.
    cost.kept.push_back(tape.tensor(tokens, shape.num_outputs, element));
    cost.kept.push_back(tape.tensor(1, shape.num_outputs, fp32_bytes));
    const std::int64_t dot = output + model::reduction_bytes(settings, tokens * shape.num_outputs);
    cost.backward = model::larger(cost.backward + output, {dot, 0});
    // Norms of the weights' rows, with the weights at hand; ranks that share inputs add them up.
    const auto& split = shape.adapted.front()->split;
    if (settings.share.place.tp > 1 && split && split->dim == 1)
      cost.forward_work.travels.push_back(
          {.among = model::Sharers::tp,
           .kind = model::Travel::Kind::all_reduce,
           .bytes = static_cast<double>(fp32_bytes * shape.num_outputs)});
    const std::int64_t squares =
        settings.is_composed ? model::reduction_bytes(settings, shape.largest_matrix) : 0;
    cost.forward = model::larger(cost.forward, {squares, model::unpacked_bytes(shape, settings)});
    add_passes(shape, settings, static_cast<double>(output), cost);
  }

  /// Norms read the weights; outputs are scaled. Backward reads the gradient with the sum, for one
  /// number each, and then scales it.
  static void add_passes(const ProjectionShape& shape, const CostSettings& settings, double output,
                         ProjectionCost& cost) {
    const auto weights = static_cast<double>(core::size_bytes(settings.compute)) *
                         static_cast<double>(shape.num_inputs * shape.num_outputs);
    const auto parts = static_cast<double>(shape.adapted.size());
    const double of_a_part = settings.is_composed ? 20 : 7;
    cost.forward_work.passes.push_back({weights + 2 * output, of_a_part * parts});
    cost.backward_work.passes.push_back({6 * output, of_a_part * parts});
  }
};

}  // namespace

const model::AdapterCost& cost() {
  static const LowRankCost low_rank;
  return low_rank;
}

}  // namespace finetune::adapters::lora
