#pragma once
// SPDX-License-Identifier: Apache-2.0
// AdamW steps on the micro-batches of tests/golden/train, and those of other programs.

#include <functional>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "modules/adapters/adapted_model.hpp"
#include "modules/golden_steps.hpp"
#include "optim/schedule.hpp"
#include "optimizers/adamw/adamw.hpp"
#include "train/step/step.hpp"

namespace finetune::tests {

struct Losses {
  std::vector<double> losses, norms;
};

/// What a run does besides its model.
struct GoldenRun {
  std::function<double(std::int64_t step)> lr;
  std::int64_t num_steps = 4;
  std::int64_t rows_a_pass = 1;
  optim::OptimizerSettings settings = {};
};

inline GoldenRun four_steps(double lr) {
  return {.lr = [lr](std::int64_t) { return lr; }};
}

/// The run that the files of tests/golden/train are of.
inline GoldenRun golden_run(std::int64_t rows_a_pass = 1) {
  optim::OptimizerSettings settings;
  settings.lr = 1e-3;
  settings.min_lr_ratio = 0.1;
  settings.warmup_steps = 4;
  settings.weight_decay = 0.1;
  const optim::Schedule schedule(settings, 20);
  return {[schedule](std::int64_t step) { return schedule.lr(step); }, 20, rows_a_pass, settings};
}

/// Collective on the mesh's world.
inline Losses train_on_golden(AdaptedModel& model, const world::World& mesh, const GoldenRun& run) {
  optimizers::adamw::AdamW optimizer(run.settings, model.table, model.shards);
  const auto files = weights::ModelFiles::open(golden("train/data.safetensors"));
  Losses all;
  for (std::int64_t step = 0; step < run.num_steps; ++step) {
    const auto result = train::run_step(
        model.engine(), mesh.loss, step_data(files, step, run.rows_a_pass, mesh.batch), optimizer,
        {.step = step, .lr = run.lr(step), .max_grad_norm = run.settings.max_grad_norm});
    all.losses.push_back(result.loss);
    all.norms.push_back(result.grad_norm);
  }
  return all;
}

/// Sums may come in another order.
inline void expect_close(const Losses& got, const Losses& expected) {
  ASSERT_EQ(got.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], expected.losses[i], 1e-5) << "step " << i;
    EXPECT_NEAR(got.norms[i], expected.norms[i], 1e-5 * expected.norms[i]) << "step " << i;
  }
}

/// That `model` trains as the golden run `name` did, to its weights `final_weights`. Collective on
/// the mesh's world. Returns how many weights were compared.
inline std::int64_t expect_golden_trajectory(AdaptedModel& model, const world::World& mesh,
                                             const std::string& name,
                                             const std::string& final_weights,
                                             std::int64_t rows_a_pass = 1) {
  const core::Json golden_json = core::read_json(golden("train/" + name + ".json"), 1 << 20);
  Losses expected;
  for (const core::Json& step : golden_json["log"]) {
    expected.losses.push_back(step["loss"].get<double>());
    expected.norms.push_back(step["grad_norm"].get<double>());
  }
  expect_close(train_on_golden(model, mesh, golden_run(rows_a_pass)), expected);
  return compare_trained(model, mesh, weights::ModelFiles::open(golden("train/" + final_weights)),
                         2e-5);
}

}  // namespace finetune::tests
