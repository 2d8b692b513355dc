// SPDX-License-Identifier: Apache-2.0
// Every mesh saves what it trains: of random models on random meshes, all ranks' slices tile every
// tensor, and another mesh finds all that its ranks hold in them. Ranks are simulated.
#include "train/run/tiling.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/read.hpp"
#include "core/clock.hpp"
#include "model/part.hpp"
#include "plan/layout/bucket.hpp"
#include "support/messages.hpp"
#include "unit/train/random_models.hpp"

namespace finetune::train::tiling_test {
namespace {

using plan::Holders;
using tests::Draws;
using tests::RandomModel;

const std::vector<plan::OptimizerState> masters = {
    {.kind = plan::master_kind, .dtype = core::DType::f32}};

/// All trained rows in the units of the plan, also those that are alike.
model::ParameterTable all_units(const plan::Plan& plan, const model::ParameterTable& whole) {
  model::ParameterTable units = plan::regroup(whole, plan.bucket, plan.mesh.ep);
  std::erase_if(units.rows, [](const model::Parameter& row) { return !row.trainable; });
  return units;
}

/// A unit as the rank at `position` has it.
struct Held {
  Held(const plan::Plan& plan, const model::ParameterTable& units, std::int64_t position)
      : table(model::part_of(units, plan::holder_place(plan.mesh, position, {}).part)),
        map(table, plan.shards.num_shards(), plan.shards.rules()) {}

  plan::HolderPlace place(const plan::Plan& plan, std::int64_t position, int unit) const {
    return plan::holder_place(plan.mesh, position, map.unit(unit));
  }

  /// For each element of the shard the number of it in its tensor, counted by the runs that
  /// weights are read by; -1: padding.
  std::vector<std::int32_t> numbers(int unit, std::int64_t i_shard) const {
    std::vector<std::int32_t> all(static_cast<std::size_t>(map.unit(unit).shard_size), -1);
    for (const plan::ShardSlice& slice : map.slices(unit, i_shard)) {
      auto at = static_cast<std::size_t>(slice.shard_offset);
      model::for_each_run(table.row(slice.row), slice.tensor_offset, slice.count,
                          [&](std::int64_t logical, std::int64_t count) {
                            for (std::int64_t i = 0; i < count; ++i)
                              all[at++] = static_cast<std::int32_t>(logical + i);
                          });
    }
    return all;
  }

  model::ParameterTable table;
  plan::ShardMap map;
};

/// What all ranks write, in memory.
struct Written {
  checkpoint::FoundCheckpoint found;
  std::vector<std::vector<std::int32_t>> values;  ///< by extent
};

using Key = std::tuple<std::string, core::Box, std::int64_t>;  ///< tensor, box, offset

Written describe(const std::map<Key, std::vector<std::int32_t>>& slices,
                 const std::map<std::string, std::vector<std::int64_t>>& shapes) {
  Written written;
  checkpoint::Manifest& manifest = written.found.manifest;
  manifest.block_bytes = checkpoint::largest_block_bytes;
  manifest.files = {{checkpoint::file_name(checkpoint::Files::node, 0), 0, 0}};
  for (const auto& [key, values] : slices) {
    const auto& [name, box, offset] = key;
    if (manifest.tensors.empty() || manifest.tensors.back().name != name)
      manifest.tensors.push_back({plan::master_kind, name, core::DType::f32, shapes.at(name)});
    const std::int64_t tensor = std::ssize(manifest.tensors) - 1;
    if (manifest.boxes.empty() || manifest.boxes.back().tensor != tensor ||
        manifest.boxes.back().box != box)
      manifest.boxes.push_back({tensor, box});
    std::int64_t& end = manifest.files.front().size_bytes;
    manifest.extents.push_back(
        {std::ssize(manifest.boxes) - 1, 0, offset, std::ssize(values), end, {0}});
    end += std::ssize(values) * 4;
    written.values.push_back(values);
  }
  return written;
}

/// Collects what the ranks of `plan` write, each from its own shard.
Written write(const plan::Plan& plan, const model::ParameterTable& units) {
  std::map<Key, std::vector<std::int32_t>> slices;
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (std::int64_t position = 0; position < plan.mesh.size(); ++position) {
    const Held held(plan, units, position);
    for (int unit = 0; unit < static_cast<int>(units.units.size()); ++unit) {
      const plan::HolderPlace place = held.place(plan, position, unit);
      const auto shard = held.numbers(unit, place.i_shard);
      for (const plan::StoredRun& run :
           plan::stored_runs(held.table, held.map, unit, place, masters, Holders::take_turns)) {
        const auto first = shard.begin() + run.offset;
        const bool is_new =
            slices
                .try_emplace({run.slice.name, run.slice.box_or_whole(), run.slice.offset}, first,
                             first + run.slice.count)
                .second;
        EXPECT_TRUE(is_new) << run.slice.name << " is written twice from " << run.slice.offset;
        shapes.try_emplace(run.slice.name, run.slice.shape);
      }
    }
  }
  return describe(slices, shapes);
}

/// Reads a slice as ranks do, by the arithmetic of boxes.
std::vector<std::int32_t> read(const Written& written, const core::TensorSlice& slice) {
  std::vector<std::int32_t> target(static_cast<std::size_t>(slice.count), -1);
  const std::int64_t tensor = written.found.manifest.find(plan::master_kind, slice.name);
  if (tensor < 0) return target;
  auto* const bytes = reinterpret_cast<std::byte*>(target.data());
  const checkpoint::Extent* const extents = written.found.manifest.extents.data();
  for (const auto& part : checkpoint::parts_of(written.found, tensor, slice, bytes)) {
    const std::int64_t begin = (part.target - bytes) / 4, origin = part.overlap.wanted(part.first);
    const auto& values = written.values[static_cast<std::size_t>(part.extent - extents)];
    part.overlap.for_each_rows(part.first, part.last, [&](const checkpoint::Rows& rows) {
      for (std::int64_t i = 0; i < rows.num * rows.length; ++i) {
        const std::int64_t row = i / rows.length, column = i % rows.length;
        const std::int64_t wanted = rows.wanted + row * rows.wanted_step + column;
        const std::int64_t stored = rows.stored + row * rows.stored_step + column;
        target.at(static_cast<std::size_t>(begin + wanted - origin)) =
            values.at(static_cast<std::size_t>(stored - part.extent->offset));
      }
    });
  }
  return target;
}

/// What every rank of `plan` reads is what it holds.
void expect_restored(const Written& written, const plan::Plan& plan,
                     const model::ParameterTable& units) {
  for (std::int64_t position = 0; position < plan.mesh.size(); ++position) {
    const Held held(plan, units, position);
    for (int unit = 0; unit < static_cast<int>(units.units.size()); ++unit) {
      const plan::HolderPlace place = held.place(plan, position, unit);
      const auto expected = held.numbers(unit, place.i_shard);
      std::vector<std::int32_t> shard(expected.size(), -1);
      for (const plan::StoredRun& run :
           plan::stored_runs(held.table, held.map, unit, place, masters, Holders::each)) {
        const auto values = read(written, run.slice);
        std::ranges::copy(values, shard.begin() + run.offset);
      }
      ASSERT_TRUE(shard == expected) << "unit " << units.units[static_cast<std::size_t>(unit)]
                                     << " of the rank at " << position;
    }
  }
}

/// Values that several elements share are the same wherever these elements are: what lies in a
/// block with an element that several ranks hold lies there on each of them.
void expect_blocks_alike(const plan::Plan& plan, const model::ParameterTable& units) {
  using Content = std::vector<std::pair<int, std::int32_t>>;  // rows and elements
  const std::int64_t block = plan.shards.rules().block;
  if (block == 1) return;
  std::map<std::pair<int, std::int32_t>, Content> known;
  for (std::int64_t i_tp = 0; i_tp < plan.mesh.axes[plan::Axis::tp]; ++i_tp) {
    for (std::int64_t i_ep = 0; i_ep < plan.mesh.ep; ++i_ep) {
      const auto own =
          model::part_of(units, {plan.mesh.axes[plan::Axis::tp], i_tp, plan.mesh.ep, i_ep});
      const plan::ShardMap map(own, plan.shards.num_shards(), plan.shards.rules());
      for (const plan::UnitLayout& unit : map.units()) {
        Content all;
        for (const int row : unit.rows)
          model::for_each_run(own.row(row), 0, own.row(row).count(),
                              [&](std::int64_t logical, std::int64_t count) {
                                for (std::int64_t i = 0; i < count; ++i)
                                  all.emplace_back(row, static_cast<std::int32_t>(logical + i));
                              });
        for (std::size_t first = 0; first < all.size(); first += static_cast<std::size_t>(block)) {
          const std::size_t last = std::min(all.size(), first + static_cast<std::size_t>(block));
          const Content content(all.begin() + static_cast<std::ptrdiff_t>(first),
                                all.begin() + static_cast<std::ptrdiff_t>(last));
          for (const auto& element : content)
            ASSERT_TRUE(known.try_emplace(element, content).first->second == content)
                << "a block with " << own.row(element.first).name << " differs between ranks";
        }
      }
    }
  }
}

/// Slices that are wanted of tensors that both meshes have are of the same tensors.
void expect_same_tensors(const plan::Plan& one, const plan::Plan& other, const RandomModel& model,
                         const plan::OptimizerFootprint& optimizer) {
  using Tensors = std::map<std::pair<std::string, std::string>, std::vector<std::int64_t>>;
  const auto tensors = [&](const plan::Plan& plan, Holders holders) {
    Tensors all;
    for (const auto& each : planned_slices(plan, all_units(plan, model.table),
                                           plan::stored_states(optimizer, plan.numbers), holders))
      all.try_emplace({each.kind, each.slice.name}, each.slice.shape);
    return all;
  };
  // Restarts demand as many parts where values are of blocks.
  const bool cuts_alike = one.mesh.axes[plan::Axis::tp] == other.mesh.axes[plan::Axis::tp] &&
                          one.mesh.ep == other.mesh.ep && one.bucket == other.bucket;
  if (optimizer.block() > 1 && !cuts_alike) return;
  EXPECT_TRUE(tensors(one, Holders::take_turns) == tensors(other, Holders::each));
}

/// A table that no family has: its ranks would be told before they train.
TEST(Tiling, ThatIsNoneIsRefusedByName) {
  Draws draws(1);
  auto model = tests::draw_model(draws);
  while (!model)
    model = tests::draw_model(draws);
  const plan::OptimizerFootprint optimizer = modules::registry().optimizers.front().footprint;
  plan::PlanInput request;
  request.architecture = model->architecture;
  request.optimizer = optimizer;
  request.max_seq_length = 8;
  const plan::Plan plan = plan::make(request, model->table);
  const auto trained = std::ranges::find_if(model->table.rows, &model::Parameter::trainable);
  ASSERT_NE(trained, model->table.rows.end());
  EXPECT_NO_THROW(require_tiling(plan, model->table, optimizer, "input.toml"));
  model->table.rows.push_back(*trained);
  try {
    require_tiling(plan, model->table, optimizer, "input.toml");
    ADD_FAILURE() << "two tensors have one name";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.kind(), core::ErrorKind::bug);
    tests::expect_facts(error.what(), "input.toml", {model->table.rows.back().name});
  }
}

std::int64_t number_of(const char* variable, std::int64_t usual) {
  const char* value = std::getenv(variable);
  return value == nullptr ? usual : std::strtoll(value, nullptr, 10);
}

/// What `draw` gives, in up to so many attempts; nothing: no attempt gave any.
template <typename F>
auto some_of(int attempts, const F& draw) {
  auto drawn = draw();
  for (int i = 1; i < attempts && !drawn; ++i)
    drawn = draw();
  return drawn;
}

/// What the cases were of.
struct Tally {
  std::int64_t cases = 0;
  std::set<std::string> models;
  std::set<std::string> meshes;
};

/// One model from one mesh to another, if two take it.
void try_case(std::uint64_t seed, Tally& tally) {
  constexpr std::int64_t most_ranks = 48;
  Draws draws(seed);
  const auto model = some_of(40, [&] { return tests::draw_model(draws); });
  if (!model) return;
  plan::OptimizerFootprint optimizer = draws.of(modules::registry().optimizers).footprint;
  if (draws.one_in(4)) optimizer = plan::with_ema(optimizer);
  const auto plan_of = [&] { return tests::draw_plan(draws, *model, optimizer, most_ranks); };
  const auto first = some_of(40, plan_of), second = some_of(40, plan_of);
  if (!first || !second) return;
  ++tally.cases;
  tally.models.insert(model->name);
  tally.meshes.insert(tests::mesh_text(first->mesh));
  SCOPED_TRACE("FINETUNE_TILING_SEED=" + std::to_string(seed) + ": " + model->name + ", " +
               optimizer.name + ", from " + tests::mesh_text(first->mesh) + " to " +
               tests::mesh_text(second->mesh) + "; " + model->config.dump());
  for (const plan::Plan* plan : {&*first, &*second}) {
    EXPECT_EQ(tiling_problem(*plan, model->table, optimizer), std::nullopt);
    expect_blocks_alike(*plan, all_units(*plan, model->table));
  }
  EXPECT_EQ(checkpoint::tiling_problem(planned_slices(
                *first, all_units(*first, model->table),
                plan::stored_states(optimizer, first->numbers), Holders::take_turns)),
            std::nullopt);
  const Written written = write(*first, all_units(*first, model->table));
  EXPECT_NO_THROW(validate(written.found.manifest, "manifest", core::ErrorKind::input));
  if (testing::Test::HasFailure()) return;
  expect_restored(written, *second, all_units(*second, model->table));
  expect_same_tensors(*first, *second, *model, optimizer);
}

/// FINETUNE_TILING_SEED: the first case. FINETUNE_TILING_CASES: how many; or
/// FINETUNE_TILING_SECONDS: for how long.
TEST(RandomMeshes, TileWhatTheyTrainAndRestoreItOnOthers) {
  const std::int64_t first = number_of("FINETUNE_TILING_SEED", 1);
  const double seconds = static_cast<double>(number_of("FINETUNE_TILING_SECONDS", 0));
  const std::int64_t cases = seconds > 0 ? std::numeric_limits<std::int64_t>::max() / 2
                                         : number_of("FINETUNE_TILING_CASES", 60);
  const core::Stopwatch watch;
  Tally tally;
  std::int64_t i = 0;
  for (; i < cases && (seconds == 0 || watch.seconds() < seconds) && !HasFailure(); ++i)
    try_case(static_cast<std::uint64_t>(first + i), tally);
  fmt::print("{} of {} cases, of {} models on {} meshes\n", tally.cases, i, tally.models.size(),
             tally.meshes.size());
  if (cases < 20 || HasFailure()) return;
  // Sizes that no model has and meshes that are refused teach nothing.
  EXPECT_GT(tally.cases, i / 2);
  EXPECT_GT(tally.models.size(), 10u);
  EXPECT_GT(tally.meshes.size(), 10u);
}

}  // namespace
}  // namespace finetune::train::tiling_test
