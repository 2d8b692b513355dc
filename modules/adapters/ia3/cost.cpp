// SPDX-License-Identifier: Apache-2.0
#include "adapters/ia3/cost.hpp"

#include <algorithm>

#include "adapters/ia3/parts.hpp"
#include "model/cost/cost.hpp"
#include "model/cost/projection_shape.hpp"

namespace finetune::adapters::ia3 {
namespace {

using model::CostSettings;
using model::ProjectionCost;
using model::ProjectionShape;

class FactorCost final : public model::AdapterCost {
 public:
  bool needs_input(const ProjectionShape& shape) const override {
    return std::ranges::any_of(shape.adapted, [](const model::Parameter* row) {
      return Factors::are_of_inputs(row->adapted);
    });
  }

  void add(const ProjectionShape& shape, const CostSettings& settings, std::int64_t tokens,
           model::CostTape& tape, ProjectionCost& cost) const override {
    const std::int64_t element = core::size_bytes(settings.compute);
    std::int64_t largest_output = 0, scaled = 0;
    for (const model::Parameter* row : shape.adapted) {
      const bool are_of_inputs = Factors::are_of_inputs(row->adapted);
      const std::int64_t elements =
          tokens * (are_of_inputs ? row->shape.back() : row->shape.front());
      add_work(elements, element, cost);
      if (are_of_inputs) continue;
      cost.kept.push_back(tape.tensor(tokens, row->shape.front(), element));
      largest_output = std::max(largest_output, elements);
      scaled += elements;
    }
    if (scaled > 0) {
      // The outputs' gradient times what is kept, and its sum; then the gradient times the factors.
      const std::int64_t sum = model::reduction_bytes(settings, largest_output);
      cost.backward = model::larger(cost.backward, {largest_output * element + sum, 0});
      cost.backward.bytes += tokens * element * shape.num_outputs;
    }
    if (needs_input(shape)) add_inputs(shape, settings, tokens, cost);
  }

 private:
  /// The scaled inputs; backward the gradient's product with the inputs, and its sum. Where other
  /// rows of the range read the inputs as they are, row by row: the outputs are put together, and
  /// backward has a row's own piece of their gradient and the sum of the rows before.
  static void add_inputs(const ProjectionShape& shape, const CostSettings& settings,
                         std::int64_t tokens, ProjectionCost& cost) {
    const std::int64_t element = core::size_bytes(settings.compute);
    const std::int64_t elements = tokens * shape.num_inputs, input = elements * element;
    const std::int64_t sum = model::reduction_bytes(settings, elements);
    cost.forward.bytes += input;
    cost.backward = model::larger(cost.backward, {2 * input + sum, 0});
    if (shape.adapted.front()->shape.front() == shape.num_outputs) return;
    std::int64_t largest = 0;
    for (const model::Parameter* row : shape.adapted)
      largest = std::max(largest, row->shape.front());
    cost.forward.bytes += tokens * element * shape.num_outputs;
    cost.backward = model::larger(cost.backward, {3 * input + tokens * element * largest + sum, 0});
  }

  /// A copy and a product forward; backward two products, a sum and a copy.
  static void add_work(std::int64_t elements, std::int64_t element, ProjectionCost& cost) {
    const auto bytes = static_cast<double>(elements * element);
    cost.forward_work.passes.push_back({4 * bytes, 2});
    cost.backward_work.passes.push_back({8 * bytes, 4});
  }
};

}  // namespace

const model::AdapterCost& cost() {
  static const FactorCost factors;
  return factors;
}

}  // namespace finetune::adapters::ia3
