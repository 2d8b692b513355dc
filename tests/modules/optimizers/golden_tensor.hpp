#pragma once
// SPDX-License-Identifier: Apache-2.0
// One tensor that other libraries' optimizers stepped, over ranks (tests/golden/optimizers).

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "optim/optimizer.hpp"
#include "support/folders.hpp"
#include "support/shards.hpp"

namespace finetune::tests {

/// What make_optimizers.py wrote, and the tensor that it began with.
class GoldenTensor {
 public:
  explicit GoldenTensor(const std::string& name)
      : json_(core::read_json(source_folder() / "tests/golden/optimizers" / name, 1 << 20)) {}

  double number(const char* key) const { return json_.at(key).get<double>(); }
  std::int64_t num_steps() const { return json_.at("steps").get<std::int64_t>(); }
  std::vector<float> values(const char* key) const {
    return json_.at(key).get<std::vector<float>>();
  }

  static model::ParameterTable table() {
    return {.rows = {{.name = "matrix", .shape = {30, 20}, .unit = 0}}, .units = {"block"}};
  }
  static float first(std::int64_t i) { return static_cast<float>((i * 53) % 199 - 99) / 64; }
  static float gradient(std::int64_t i, std::int64_t step) {
    return static_cast<float>((i * 37 + step * 101) % 257 - 128) / 1024;
  }

  /// `odd` is of table(). `lr(step)` of each step. Collective on its ranks.
  template <typename Lr>
  void train(OddShards& odd, optim::Optimizer& optimizer, const Lr& lr) const {
    odd.for_each([](int, std::int64_t i, float& value) { value = first(i); });
    odd.shards.publish_all();
    for (std::int64_t step = 0; step < num_steps(); ++step) {
      odd.for_each_gradient([&](int, std::int64_t i, float& value) { value = gradient(i, step); });
      optimizer.step(odd.shards, step, lr(step), 1);
    }
  }

 private:
  core::Json json_;
};

}  // namespace finetune::tests
