// SPDX-License-Identifier: Apache-2.0
// Products with adapters on top of dense and of packed matrices, on the device as on the CPU.
#include <tuple>

#include "adapters/ia3/math.hpp"
#include "adapters/lora/math.hpp"
#include "gpu/as_on_cpu.hpp"
#include "model/projection.hpp"
#include "model/weight.hpp"

namespace finetune::tests::gpu::adapters_test {
namespace {

constexpr std::int64_t tokens = 50, width = 72, outputs = 40, rank = 8;

struct Case {
  const char* name;
  model::Adapted adapted;
  std::vector<std::vector<std::int64_t>> parts;  ///< shapes of rows 1, 2, ...
  double dropout = 0;

  friend void PrintTo(const Case& of, std::ostream* to) { *to << of.name; }
};

/// Row 0 is the frozen matrix.
class Adapting : public TinyWeights {
 public:
  Adapting(std::vector<at::Tensor> tensors, const model::Adapted& adapted)
      : TinyWeights(std::move(tensors)), adapted_(adapted) {}

  std::vector<model::TrainedPart> trained(model::RowRange) const override { return {}; }
  std::vector<model::AdaptedPart> adapted(model::RowRange) const override {
    return {{0, &adapted_, 0, outputs}};
  }

 private:
  model::Adapted adapted_;
};

std::vector<Case> cases() {
  const auto& lora = adapters::lora::math();
  const auto& ia3 = adapters::ia3::math();
  const model::Adapted low_rank{.parts = {1, 2}, .scale = 2, .math = &lora};
  const std::vector<std::vector<std::int64_t>> a_and_b = {{rank, width}, {outputs, rank}};
  auto with_magnitude = a_and_b;
  with_magnitude.push_back({outputs});
  return {
      {"lora", low_rank, a_and_b},
      {"lora_dropout", low_rank, a_and_b, 0.1},
      {"dora", {.parts = {1, 2, 3}, .scale = 2, .math = &lora}, with_magnitude},
      {"dora_dropout", {.parts = {1, 2, 3}, .scale = 2, .math = &lora}, with_magnitude, 0.1},
      {"ia3_outputs", {.parts = {1}, .math = &ia3}, {{outputs, 1}}},
      {"ia3_inputs", {.parts = {-1, 1}, .math = &ia3}, {{1, width}}},
  };
}

class AdapterOf : public testing::TestWithParam<std::tuple<Case, at::ScalarType>> {};

TEST_P(AdapterOf, ComputesAsOnTheCpu) {
  const auto& [of, dtype] = GetParam();
  expect_as_on_cpu(dtype, [&of = of](Computation& c) {
    std::vector<at::Tensor> tensors{c.normal({outputs, width}, 1, 0.2)};
    for (std::size_t i = 0; i < of.parts.size(); ++i) {
      // A magnitude is positive.
      const bool is_magnitude = of.parts[i].size() == 1;
      const at::Tensor part = tests::normal(of.parts[i], 10 + i) * 0.3;
      tensors.push_back(c.number(is_magnitude ? part.abs() + 1 : part));
    }
    const int num_rows = static_cast<int>(tensors.size());
    Adapting weights(std::move(tensors), of.adapted);
    const model::Projection projection{
        .weights = &weights,
        .rows = {0, 1},
        .dropout =
            of.dropout > 0
                ? std::optional(model::DropoutMask{
                      .p = of.dropout, .seed = 3, .tokens_N = c.integers(1LL << 40, tokens, 4)})
                : std::nullopt};
    const at::Tensor x = c.normal({tokens, width}, 2);
    const model::Projected made = model::project(projection, x);
    c.keep("y", made.y_NF);
    c.keep("dx", model::project_backward(projection, c.normal({tokens, outputs}, 3), x, made.kept));
    c.keep_gradients(weights, num_rows);
  });
}

INSTANTIATE_TEST_SUITE_P(All, AdapterOf, testing::Combine(testing::ValuesIn(cases()), all_dtypes),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  name_of(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace finetune::tests::gpu::adapters_test
