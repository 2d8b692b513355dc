#pragma once
// SPDX-License-Identifier: Apache-2.0
// A tiny model that trains on any mesh of a test's ranks.

#include <memory>
#include <optional>
#include <vector>

#include "adapters/lora/settings.hpp"
#include "data/steps/stream.hpp"
#include "model/part.hpp"
#include "model/products.hpp"
#include "optimizers/adamw/adamw.hpp"
#include "plan/layout/bucket.hpp"
#include "registry.hpp"
#include "shard/parallel_ops.hpp"
#include "support/mesh.hpp"
#include "train/infer/evaluate.hpp"
#include "train/step/step.hpp"
#include "unit/train/tiny_model.hpp"

namespace finetune::tests {

/// What a run is made of besides its data.
struct Arrangement {
  const char* name = "";
  int dp_shard = 1;
  plan::Sharding sharding = plan::Sharding::full_shard;
  plan::Numbers numbers = {};
  bool overlap = true;
  int prefetch = 1;
  train::Blocks blocks = train::Blocks::kept;
  model::Recompute recompute = model::Recompute::nothing;
  TinyKind kind = TinyKind::own_head;
  const char* bucket = "BLOCK";
  std::int64_t micro_batch = 2;
  model::AdapterSettings adapter = {};
  optim::Rounding rounding = optim::Rounding::stochastic;
  std::uint64_t seed = 0;  ///< of rounding
  plan::Alone alone = plan::Alone::keeps;
  Parts parts = {};
  plan::ContextMethod context = plan::ContextMethod::automatic;
  std::int64_t packed_positions = 0;  ///< of a row that several samples share; 0: one each
  bool balances_micro_batch = false;
  double neftune_alpha = 0;
  int top_k = 0;  ///< experts of a token; 0: those of the kind
  model::RopeScaling rope = {};
};

inline model::ParameterTable adapted(model::ParameterTable table,
                                     const model::AdapterSettings& settings) {
  for (const model::Adapter& adapter : modules::registry().adapters)
    if (adapter.name == settings.name) model::put_on(adapter, settings, "test", table);
  return table;
}

inline model::Architecture architecture_of(const Arrangement& setup) {
  model::Architecture architecture = tiny_architecture(setup.kind);
  if (setup.top_k > 0) architecture.experts.top_k = setup.top_k;
  architecture.rope_scaling = setup.rope;
  return architecture;
}

/// In units.
inline model::ParameterTable table_of(const Arrangement& setup) {
  model::ParameterTable table =
      adapted(tiny_family(setup.kind).describe(architecture_of(setup)), setup.adapter);
  if (setup.numbers.fp8) model::keep_in_fp8(*setup.numbers.fp8, table);
  return plan::regroup(table, plan::bucket_named(setup.bucket), setup.parts.ep);
}

/// Everything that a number of ranks may not change.
struct Trajectory {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> weights;  ///< of the whole model, row by row
  double validation_loss = 0;

  bool operator==(const Trajectory&) const = default;
};

/// This model's gradients are large: at 2^16, the first step would overflow.
inline optim::LossScale modest_scale() {
  return {{{"scale", 0x1p9}, {"good_steps", 0}, {"skipped", 0}, {"skipped_in_all", 0}}, "test"};
}

/// A rank's own table, of which what travels in 8 bits is settled.
inline model::ParameterTable settled(model::ParameterTable own) {
  model::settle_published(own);
  return own;
}

class Trainer {
 public:
  Trainer(const comm::Communicator& all, const Arrangement& setup)
      : setup_(setup),
        world_(mesh_of(all, setup.dp_shard, setup.parts)),
        groups_(shard::make_groups(world_, setup.overlap, setup.alone)),
        architecture_(architecture_of(setup)),
        table_(table_of(setup)),
        own_(settled(model::part_of(table_, groups_.part_place()))),
        map_(own_, world_.fsdp.size(), {.compute = setup.numbers.compute, .ep = setup.parts.ep}),
        model_(tiny_family(setup.kind).build(architecture_)),
        shards_(own_, map_, groups_, options(setup)),
        ops_(shard::make_ops(shards_, model::path_of(setup.numbers.widens), setup.recompute)),
        optimizer_(optimizer_settings(setup), own_, shards_, shard::to_aten(setup.numbers.moments),
                   model::Path::kernels, setup.seed) {
    base::randomize(architecture_, table_, 3, shards_);
  }

  train::Engine engine() {
    return {.architecture = architecture_,
            .model = *model_,
            .ops = *ops_,
            .shards = shards_,
            .blocks = setup_.blocks,
            .dropout = setup_.adapter.of<adapters::lora::Settings>().dropout,
            .dropout_seed = 11,
            .neftune_alpha = setup_.neftune_alpha,
            .balances_micro_batch = setup_.balances_micro_batch};
  }
  shard::ModelShards& shards() { return shards_; }
  const world::World& world() const { return world_; }
  const shard::Groups& groups() const { return groups_; }

  static constexpr double usual_lr = 5e-3;

  train::StepResult step(std::int64_t number, double lr = usual_lr) {
    return step(number, data(number), lr);
  }
  /// `more_follow`: steps.
  train::StepResult step(std::int64_t number, const data::StepData& data, double lr = usual_lr,
                         bool more_follow = false) {
    return train::run_step(engine(), world_.loss, data, optimizer_,
                           {.step = number,
                            .lr = lr,
                            .max_grad_norm = 1.0,
                            .loss_scale = setup_.numbers.scales_loss ? &loss_scale_ : nullptr,
                            .more_follow = more_follow});
  }
  optim::LossScale& loss_scale() { return loss_scale_; }
  optimizers::adamw::AdamW& optimizer() { return optimizer_; }

  /// Collective on the world.
  Trajectory train(std::int64_t num_steps, double lr = usual_lr) {
    Trajectory trajectory;
    for (std::int64_t i = 0; i < num_steps; ++i) {
      const train::StepResult result = step(i, data(i), lr, i + 1 < num_steps);
      trajectory.losses.push_back(result.loss);
      trajectory.norms.push_back(result.grad_norm);
    }
    trajectory.weights = weights();
    trajectory.validation_loss = validation_loss();
    return trajectory;
  }

  /// Of samples that no step has. Collective on the world.
  train::Evaluation evaluate() {
    data::Stream stream = this->stream(100);
    return train::evaluate(engine(), world_.loss, stream);
  }
  double validation_loss() { return evaluate().loss; }

  /// The whole model's weights, on every rank. Collective on fsdp and tp.
  std::vector<float> weights() {
    return whole([this](int unit) { return shards_.master(unit); });
  }
  /// Takes what `weights` of any ranks gave, in fp32.
  void take(const std::vector<float>& weights) {
    const std::vector<std::int64_t> first = first_of_rows();
    for (const int unit : shards_.trained_units()) {
      const at::Tensor shard = shards_.master(unit);
      for (const plan::ShardSlice& slice : map_.slices(unit, shards_.shard_of(unit))) {
        float* to = shard.data_ptr<float>() + slice.shard_offset;
        const float* row = weights.data() + first[static_cast<std::size_t>(slice.row)];
        model::for_each_run(own_.row(slice.row), slice.tensor_offset, slice.count,
                            [&](std::int64_t logical, std::int64_t count) {
                              to = std::copy_n(row + logical, count, to);
                            });
      }
    }
  }
  /// The whole model's gradient of one step, on every rank. Collective on the world.
  std::vector<float> gradient() { return gradient(data(0)); }
  std::vector<float> gradient(const data::StepData& data) {
    step(0, data, 0.0);
    return whole([this](int unit) { return shards_.gradient(unit); });
  }

 private:
  static shard::Options options(const Arrangement& setup) {
    return {.numbers = setup.numbers,
            .sharding = setup.sharding,
            .overlap = setup.overlap,
            .prefetch = setup.prefetch,
            .context = setup.context};
  }
  /// Where the rows of the whole model begin, one after the other.
  std::vector<std::int64_t> first_of_rows() const {
    std::vector<std::int64_t> first = {0};
    for (const model::Parameter& row : table_.rows)
      first.push_back(first.back() + row.count());
    return first;
  }
  /// Elements of all units' shards of all ranks, row by row.
  template <typename ShardOf>
  std::vector<float> whole(const ShardOf& shard_of) {
    std::vector<float> all(static_cast<std::size_t>(table_.num_parameters()), 0.0f);
    const std::vector<std::int64_t> first_of_row = first_of_rows();
    for (const int unit : shards_.trained_units()) {
      const at::Tensor shard = shard_of(unit).to(at::kFloat);
      for (const plan::ShardSlice& slice : map_.slices(unit, shards_.shard_of(unit))) {
        const float* from = shard.template const_data_ptr<float>() + slice.shard_offset;
        const std::int64_t first = first_of_row[static_cast<std::size_t>(slice.row)];
        const model::Parameter& row = own_.row(slice.row);
        const bool is_counted = !row.held || row.held->holder == 0;
        model::for_each_run(row, slice.tensor_offset, slice.count,
                            [&](std::int64_t logical, std::int64_t count) {
                              if (is_counted)
                                std::copy(from, from + count, all.begin() + first + logical);
                              from += count;
                            });
      }
    }
    world_.fsdp.all_reduce(std::span<float>(all), comm::Reduce::sum);
    world_.tp.all_reduce(std::span<float>(all), comm::Reduce::sum);
    return all;
  }
  static optim::OptimizerSettings optimizer_settings(const Arrangement& setup) {
    optim::OptimizerSettings settings;
    settings.weight_decay = 0.1;
    settings.rounding = setup.rounding;
    return settings;
  }

  data::StepData data(std::int64_t step) const { return stream(step).step(0); }

  /// Seven samples of different lengths: with two a micro-batch, the last of four has one.
  data::Stream stream(std::int64_t step) const {
    auto tokens = std::make_shared<std::vector<data::PackedToken>>();
    std::vector<data::Span> samples;
    for (std::int32_t i = 0; i < 7; ++i) {
      const std::int32_t length = 4 + (3 * i + static_cast<std::int32_t>(step)) % 9;
      samples.push_back({std::ssize(*tokens), length});
      for (std::int32_t k = 0; k < length; ++k)
        tokens->emplace_back((3 * i + k * k + static_cast<std::int32_t>(step)) % 11, k > 1);
    }
    const data::Dataset dataset(tokens, samples);
    if (setup_.packed_positions > 0) {
      auto rows = data::Sequences::packed(dataset, setup_.packed_positions);
      const std::int64_t num_rows = rows.size();
      return {std::move(rows),
              {num_rows, num_rows, 1, data::SampleOrder::as_read},
              {setup_.micro_batch, world_.batch.size(), world_.batch.rank()},
              0};
    }
    return {dataset,
            {7, 7, 1, data::SampleOrder::as_read},
            {setup_.micro_batch, world_.batch.size(), world_.batch.rank()},
            0};
  }

  Arrangement setup_;
  world::World world_;
  shard::Groups groups_;
  model::Architecture architecture_;
  model::ParameterTable table_;
  model::ParameterTable own_;  ///< this rank's part
  plan::ShardMap map_;
  model::ModelPtr model_;
  shard::ModelShards shards_;
  std::unique_ptr<model::Ops> ops_;
  optimizers::adamw::AdamW optimizer_;
  optim::LossScale loss_scale_ = modest_scale();
};

/// Of one token each and of two, some of them trained.
inline data::StepData short_samples(const Trainer& trainer) {
  data::StepData data{.micro_steps = {}, .num_samples = 4, .num_trained_tokens = 4};
  const std::vector<data::MicroBatch> batches = {
      {.batch = 2, .length = 1, .ids = {3, 5}, .labels = {7, 2}},
      {.batch = 2, .length = 2, .ids = {4, 1, 9, 6}, .labels = {-100, 8, 10, -100}}};
  const comm::Communicator& batch = trainer.world().batch;
  for (std::size_t first = 0; first < batches.size();
       first += static_cast<std::size_t>(batch.size())) {
    const std::size_t mine = first + static_cast<std::size_t>(batch.rank());
    data.micro_steps.push_back(mine < batches.size() ? std::optional(batches[mine]) : std::nullopt);
  }
  return data;
}

inline plan::Numbers numbers(core::DType compute, plan::Determinism determinism) {
  plan::Numbers numbers = {};
  numbers.compute = compute;
  numbers.widens = model::path_for(compute) == model::Path::widened;
  numbers.scales_loss = compute == core::DType::f16;
  numbers.determinism = determinism;
  return numbers;
}

/// Every arrangement that this number of ranks allows.
inline std::vector<Arrangement> arrangements(int world_size, const plan::Numbers& numbers) {
  using plan::Sharding;
  std::vector<Arrangement> all = {
      {.name = "FULL_SHARD", .dp_shard = world_size, .numbers = numbers},
      {.name = "FULL_SHARD, no overlap",
       .dp_shard = world_size,
       .numbers = numbers,
       .overlap = false},
      {.name = "FULL_SHARD, two ahead", .dp_shard = world_size, .numbers = numbers, .prefetch = 2},
      {.name = "FULL_SHARD, LAYER", .dp_shard = world_size, .numbers = numbers, .bucket = "LAYER"},
      {.name = "FULL_SHARD, NONE", .dp_shard = world_size, .numbers = numbers, .bucket = "NONE"},
      {.name = "FULL_SHARD, blocks again",
       .dp_shard = world_size,
       .numbers = numbers,
       .blocks = train::Blocks::recomputed},
      {.name = "FULL_SHARD, the first block and all norms again",
       .dp_shard = world_size,
       .numbers = numbers,
       .blocks = {.num_recomputed = 1},
       .recompute = model::Recompute::cheap},
      {.name = "FULL_SHARD, norms again",
       .dp_shard = world_size,
       .numbers = numbers,
       .recompute = model::Recompute::cheap},
      {.name = "SHARD_GRAD_OP",
       .dp_shard = world_size,
       .sharding = Sharding::shard_grad_op,
       .numbers = numbers},
      {.name = "NO_SHARD", .dp_shard = 1, .sharding = Sharding::no_shard, .numbers = numbers}};
  if (world_size % 2 == 0) {
    all.push_back({.name = "HYBRID_SHARD",
                   .dp_shard = 2,
                   .sharding = Sharding::hybrid_shard,
                   .numbers = numbers});
    all.push_back({.name = "HYBRID_SHARD, no overlap, blocks again",
                   .dp_shard = 2,
                   .sharding = Sharding::hybrid_shard,
                   .numbers = numbers,
                   .overlap = false,
                   .blocks = train::Blocks::recomputed});
  }
  return all;
}

}  // namespace finetune::tests
