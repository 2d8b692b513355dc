#pragma once
// SPDX-License-Identifier: Apache-2.0
// A tiny model that trains on any mesh of a test's ranks.

#include <memory>
#include <optional>
#include <vector>

#include "adapters/lora/settings.hpp"
#include "optimizers/adamw/adamw.hpp"
#include "registry.hpp"
#include "support/tiny_model.hpp"
#include "train/infer/evaluate.hpp"
#include "train/step/step.hpp"

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

inline model::Architecture architecture_of(const Arrangement& setup) {
  model::Architecture architecture = tiny_architecture(setup.kind);
  if (setup.top_k > 0) architecture.experts.top_k = setup.top_k;
  architecture.rope_scaling = setup.rope;
  return architecture;
}

/// In units.
inline model::ParameterTable table_of(const Arrangement& setup) {
  model::ParameterTable table = adapted(tiny_family(setup.kind).describe(architecture_of(setup)),
                                        setup.adapter, modules::registry().adapters);
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

class Trainer {
 public:
  Trainer(const comm::Communicator& all, const Arrangement& setup)
      : setup_(setup),
        world_(mesh_of(all, setup.dp_shard, setup.parts)),
        model_(architecture_of(setup), tiny_family(setup.kind), table_of(setup),
               shard::make_groups(world_, setup.overlap, setup.alone), options(setup),
               model::path_of(setup.numbers.widens), setup.recompute),
        optimizer_(optimizer_settings(setup), model_.table, shards(),
                   shard::to_aten(setup.numbers.moments), model::Path::kernels, setup.seed) {
    base::randomize(model_.architecture, model_.whole, 3, shards());
  }

  train::Engine engine() {
    return {.architecture = model_.architecture,
            .model = *model_.model,
            .ops = model_.ops,
            .shards = shards(),
            .blocks = setup_.blocks,
            .dropout = setup_.adapter.of<adapters::lora::Settings>().dropout,
            .dropout_seed = 11,
            .neftune_alpha = setup_.neftune_alpha,
            .balances_micro_batch = setup_.balances_micro_batch};
  }
  shard::ModelShards& shards() { return model_.shards; }
  const world::World& world() const { return world_; }
  const shard::Groups& groups() const { return model_.shards.groups(); }

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
    return *train::evaluate(engine(), world_.loss, stream);
  }
  double validation_loss() { return evaluate().loss; }

  /// The whole model's weights, on every rank. Collective on fsdp and tp.
  std::vector<float> weights() {
    return whole([this](int unit) { return shards().master(unit); });
  }
  /// Takes what `weights` of any ranks gave, in fp32.
  void take(const std::vector<float>& weights) {
    const std::vector<std::int64_t> first = first_of_rows();
    model_.for_each([&](int row, std::int64_t i, float& value) {
      value = weights[static_cast<std::size_t>(first[static_cast<std::size_t>(row)] + i)];
    });
  }
  /// The whole model's gradient of one step, on every rank. Collective on the world.
  std::vector<float> gradient() { return gradient(data(0)); }
  std::vector<float> gradient(const data::StepData& data) {
    step(0, data, 0.0);
    return whole([this](int unit) { return shards().gradient(unit); });
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
    for (const model::Parameter& row : model_.whole.rows)
      first.push_back(first.back() + row.count());
    return first;
  }
  /// Elements of all units' shards of all ranks, row by row; what several hold is the first one's.
  template <typename OfUnit>
  std::vector<float> whole(const OfUnit& of_unit) {
    const std::vector<std::int64_t> first = first_of_rows();
    std::vector<float> all(static_cast<std::size_t>(first.back()), 0.0f);
    model_.for_each(
        [&](int row, std::int64_t i, float value) {
          const auto& held = model_.table.row(row).held;
          if (!held || held->holder == 0)
            all[static_cast<std::size_t>(first[static_cast<std::size_t>(row)] + i)] = value;
        },
        of_unit);
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
    const auto shift = static_cast<std::int32_t>(step);
    const data::Dataset samples = tiny_samples(
        7, [&](std::int32_t i) { return 4 + (3 * i + shift) % 9; }, shift);
    return in_one_step(setup_.packed_positions > 0
                           ? data::Sequences::packed(samples, setup_.packed_positions)
                           : data::Sequences(samples),
                       setup_.micro_batch, world_.batch);
  }

  Arrangement setup_;
  world::World world_;
  SplitModel model_;
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
