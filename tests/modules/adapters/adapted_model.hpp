#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model folder with an adapter, over the ranks of a mesh, for the tests of adapters.

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "adapters/lora/settings.hpp"
#include "base/starts.hpp"
#include "model/quantization.hpp"
#include "registry.hpp"
#include "support/golden.hpp"
#include "support/margins.hpp"
#include "support/model.hpp"
#include "weights/peft.hpp"

namespace finetune::tests {

struct AdaptedSetup {
  std::filesystem::path model = golden("models/llama");
  model::AdapterSettings adapter;
  std::string bucket = "BLOCK";
  /// PEFT's folder of the adapter to begin with; empty: random numbers.
  std::filesystem::path start = golden("train/lora_init");
  model::Quantization quantization = {};
  model::Recompute recompute = model::Recompute::nothing;
  train::Blocks blocks = train::Blocks::kept;
  /// Changes the table that the adapter made, and the weights that the model's files hold.
  std::function<void(model::ParameterTable&)> adjust = {};
  std::function<base::WeightSource(base::WeightSource, const model::ParameterTable&)> replace = {};
};

/// The adapter of tests/golden/train.
inline model::AdapterSettings golden_adapter(const std::string& name) {
  model::AdapterSettings settings;
  settings.name = name;
  settings.of<adapters::lora::Settings>().r = 8;
  settings.of<adapters::lora::Settings>().alpha = 16;
  return settings;
}

class AdaptedModel : public SplitModel {
 public:
  /// Collective on the mesh's world.
  AdaptedModel(const AdaptedSetup& setup, const world::World& mesh, const shard::Options& options)
      : AdaptedModel(
            setup, mesh, options,
            model::identify(model::read_config(setup.model), (setup.model / "config.json").string(),
                            modules::registry().families)) {
    const auto files = weights::ModelFiles::open(mesh.world, setup.model);
    base::WeightSource base = base::files_source(files, whole);
    if (setup.replace) base = setup.replace(base, whole);
    if (setup.start.empty()) {
      base::load_weights(
          base::with_adapter(base, base::random_source(architecture, whole, 1), whole), shards);
      base::set_magnitudes(shards);
      base::set_starts(1, shards);
      return;
    }
    const auto start =
        weights::PeftAdapter::open(mesh.world, setup.start, modules::registry().adapters);
    base::load_weights({[&](int row, std::int64_t first, std::span<float> target) {
                          if (whole.row(row).trainable)
                            return start.read(whole.row(row), first, target);
                          base.values(row, first, target);
                        },
                        base.plane},
                       shards);
  }

  train::Engine engine() {
    return {.architecture = architecture,
            .model = *model,
            .ops = ops,
            .shards = shards,
            .blocks = setup_.blocks,
            .dropout = setup_.adapter.of<adapters::lora::Settings>().dropout,
            .dropout_seed = 7};
  }

 private:
  AdaptedModel(const AdaptedSetup& setup, const world::World& mesh, const shard::Options& options,
               const model::Identified& identified)
      : SplitModel(identified.architecture, *identified.family, table_of(setup, identified),
                   shard::make_groups(mesh, true), options,
                   model::path_for(options.numbers.compute), setup.recompute),
        setup_(setup) {}
  static model::ParameterTable table_of(const AdaptedSetup& setup,
                                        const model::Identified& identified) {
    model::ParameterTable rows = identified.family->describe(identified.architecture);
    model::mark_packed(setup.quantization, "test", rows);
    rows = adapted(std::move(rows), setup.adapter, modules::registry().adapters);
    if (setup.adjust) setup.adjust(rows);
    return plan::regroup(rows, plan::bucket_named(setup.bucket));
  }

  AdaptedSetup setup_;
};

/// This rank's numbers against rows of files.
class RowComparison {
 public:
  explicit RowComparison(const weights::ModelFiles& files) : files_(files) {}

  /// Element `i` of the logical row; with `any_sign`, of a number whose sign is not given.
  void compare(const std::string& name, std::int64_t i, float value, bool any_sign = false) {
    auto [found, is_new] = rows_.try_emplace(name);
    if (is_new) found->second.wanted = read_golden<float>(files_, name);
    double& worst = found->second.worst;
    const float wanted = found->second.wanted[static_cast<std::size_t>(i)];
    const double apart = any_sign ? std::abs(std::abs(value) - std::abs(wanted))
                                  : std::abs(static_cast<double>(value) - wanted);
    // A NaN must fail a comparison, not vanish in a maximum.
    if (!std::isnan(worst) && !(apart <= worst)) worst = apart;
    ++num_compared_;
  }
  void expect_below(double tolerance) const {
    for (const auto& [name, row] : rows_)
      EXPECT_LT(row.worst, noted(row.worst, tolerance)) << name;
  }
  /// Of the largest entry of the row.
  void expect_within(double part) const {
    for (const auto& [name, row] : rows_)
      EXPECT_LE(row.worst, noted(row.worst, part * largest_magnitude(row.wanted))) << name;
  }
  std::int64_t num_compared() const { return num_compared_; }

 private:
  struct Row {
    std::vector<float> wanted;
    double worst = 0;
  };
  const weights::ModelFiles& files_;
  std::map<std::string, Row> rows_;
  std::int64_t num_compared_ = 0;
};

/// That this rank's trained weights are those of the files, by name. Returns how many all ranks
/// compared, of those that several hold one. Collective on fsdp and tp.
inline std::int64_t compare_trained(const AdaptedModel& model, const world::World& mesh,
                                    const weights::ModelFiles& expected, double tolerance) {
  RowComparison comparison(expected);
  std::int64_t counted = 0;
  model.for_each([&](int i_row, std::int64_t i, float value) {
    const model::Parameter& row = model.table.row(i_row);
    comparison.compare(row.name, i, value);
    if (!row.held || row.held->holder == 0) ++counted;
  });
  comparison.expect_below(tolerance);
  return mesh.tp.all_reduce(mesh.fsdp.all_reduce(counted, comm::Reduce::sum), comm::Reduce::sum);
}

}  // namespace finetune::tests
