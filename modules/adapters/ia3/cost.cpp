// SPDX-License-Identifier: Apache-2.0
#include "adapters/ia3/cost.hpp"

#include <algorithm>

#include "adapters/ia3/parts.hpp"

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
    bool scales_outputs = false;
    for (const model::Parameter* row : shape.adapted) {
      if (Factors::are_of_inputs(row->adapted)) {
        add_inputs(settings, tokens * row->shape.back(), element, cost);
      } else {
        scales_outputs = true;
        cost.kept.push_back(tape.tensor(tokens, row->shape.front(), element));
        add_outputs(settings, tokens * row->shape.front(), element, cost);
      }
    }
    // The outputs' gradient times the factors.
    if (scales_outputs) cost.backward.bytes += tokens * element * shape.num_outputs;
  }

 private:
  /// The scaled inputs; backward the gradient's product with the inputs, and its sum.
  static void add_inputs(const CostSettings& settings, std::int64_t elements, std::int64_t element,
                         ProjectionCost& cost) {
    cost.forward.bytes += elements * element;
    cost.backward = model::larger(
        cost.backward, {2 * elements * element + model::reduction_bytes(settings, elements), 0});
    add_work(elements, element, cost);
  }

  /// Of what is kept; backward the outputs' gradient times it, and its sum.
  static void add_outputs(const CostSettings& settings, std::int64_t elements, std::int64_t element,
                          ProjectionCost& cost) {
    cost.backward = model::larger(
        cost.backward, {elements * element + model::reduction_bytes(settings, elements), 0});
    add_work(elements, element, cost);
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
