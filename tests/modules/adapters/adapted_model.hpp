#pragma once
// SPDX-License-Identifier: Apache-2.0
// A model folder with an adapter, over the ranks of a mesh, for the tests of adapters.

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "adapters/lora/settings.hpp"
#include "base/initial_weights.hpp"
#include "base/packed_files.hpp"
#include "base/starts.hpp"
#include "model/part.hpp"
#include "model/products.hpp"
#include "model/quantization.hpp"
#include "plan/layout/bucket.hpp"
#include "registry.hpp"
#include "shard/parallel_ops.hpp"
#include "support/golden.hpp"
#include "support/margins.hpp"
#include "support/mesh.hpp"
#include "support/ranks.hpp"
#include "train/step/passes.hpp"
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

class AdaptedModel {
 public:
  /// Collective on the mesh's world.
  AdaptedModel(const AdaptedSetup& setup, const world::World& mesh, const shard::Options& options)
      : setup_(setup),
        identified_(model::identify(model::read_config(setup.model),
                                    (setup.model / "config.json").string(),
                                    modules::registry().families)),
        groups_(shard::make_groups(mesh, true)),
        whole(make_table()),
        table(model::part_of(whole, groups_.part_place())),
        map(table, mesh.fsdp.size(), {.compute = options.numbers.compute}),
        model(identified_.family->build(identified_.architecture)),
        shards(table, map, groups_, options),
        ops_(shard::make_ops(shards, model::path_for(options.numbers.compute), setup.recompute)) {
    const auto files = weights::ModelFiles::open(mesh.world, setup.model);
    base::WeightSource base = base::files_source(files, whole);
    if (setup.replace) base = setup.replace(base, whole);
    if (setup.start.empty()) {
      load(
          base::with_adapter(base, base::random_source(identified_.architecture, whole, 1), whole));
    } else {
      const auto start =
          weights::PeftAdapter::open(mesh.world, setup.start, modules::registry().adapters);
      load({[&](int row, std::int64_t first, std::span<float> target) {
              if (whole.row(row).trainable) return start.read(whole.row(row), first, target);
              base.values(row, first, target);
            },
            base.plane});
    }
  }

  train::Engine engine() {
    return {.architecture = identified_.architecture,
            .model = *model,
            .ops = *ops_,
            .shards = shards,
            .blocks = setup_.blocks,
            .dropout = setup_.adapter.of<adapters::lora::Settings>().dropout,
            .dropout_seed = 7};
  }

 private:
  model::ParameterTable make_table() const {
    model::ParameterTable rows = identified_.family->describe(identified_.architecture);
    model::mark_packed(setup_.quantization, "test", rows);
    for (const model::Adapter& adapter : modules::registry().adapters)
      if (adapter.name == setup_.adapter.name) model::put_on(adapter, setup_.adapter, "test", rows);
    if (setup_.adjust) setup_.adjust(rows);
    return plan::regroup(rows, plan::bucket_named(setup_.bucket));
  }
  void load(const base::WeightSource& source) {
    base::load_weights(source, shards);
    if (!setup_.start.empty()) return;
    base::set_magnitudes(shards);
    base::set_starts(1, shards);
  }

  AdaptedSetup setup_;
  model::Identified identified_;
  shard::Groups groups_;

 public:
  model::ParameterTable whole;
  model::ParameterTable table;  ///< of this rank's part
  plan::ShardMap map;
  model::ModelPtr model;
  shard::ModelShards shards;

 private:
  std::unique_ptr<model::Ops> ops_;
};

/// That this rank's trained weights are those of the files, by name. Returns how many all ranks
/// compared, of those that several hold one. Collective on fsdp and tp.
inline std::int64_t compare_trained(const AdaptedModel& model, const world::World& mesh,
                                    const weights::ModelFiles& expected, double tolerance) {
  std::int64_t compared = 0;
  for (const int unit : model.shards.trained_units()) {
    const at::Tensor master = model.shards.master(unit);
    for (const auto& slice : model.map.slices(unit, mesh.fsdp.rank())) {
      const model::Parameter& row = model.table.row(slice.row);
      const std::vector<float> wanted = read_golden<float>(expected, row.name);
      const float* got = master.const_data_ptr<float>() + slice.shard_offset;
      model::for_each_run(
          row, slice.tensor_offset, slice.count, [&](std::int64_t first, std::int64_t count) {
            const auto n = static_cast<std::size_t>(count);
            const auto part = std::span(wanted).subspan(static_cast<std::size_t>(first), n);
            const double difference = largest_difference({got, n}, part);
            EXPECT_LT(difference, noted(difference, tolerance)) << row.name;
            got += count;
            if (!row.held || row.held->holder == 0) compared += count;
          });
    }
  }
  return mesh.tp.all_reduce(mesh.fsdp.all_reduce(compared, comm::Reduce::sum), comm::Reduce::sum);
}

}  // namespace finetune::tests
