// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "core/memory_use.hpp"
#include "kernels/composed_ema.hpp"
#include "kernels/ema.hpp"
#include "kernels/gpu_kernels.hpp"
#include "optim/detail/unit_memory.hpp"
#include "optim/elements.hpp"
#include "optim/trained_rows.hpp"
#include "schedule/pass.hpp"
#include "shard/options.hpp"

namespace finetune::optim {

Optimizer::Optimizer(plan::OptimizerFootprint footprint, const OptimizerSettings& settings,
                     const model::ParameterTable& table, const shard::ModelShards& shards,
                     at::ScalarType moments, model::Path path, std::uint64_t seed)
    : footprint_(std::move(footprint)),
      settings_(settings),
      table_(table),
      moments_(moments),
      path_(path),
      seed_(seed),
      timer_(shards.options().device),
      states_(static_cast<std::size_t>(shards.num_units())) {
  core::check(shards.map().rules().block % footprint_.block() == 0,
              "shards are whole blocks of the optimizer's states");
  std::int64_t index = 0;
  for (const model::Parameter& row : table.rows) {
    first_index_.push_back(index);
    if (row.trainable) index += row.count();
  }
  const core::MemoryScope scope(core::MemoryUse::states);
  for (const int unit : shards.trained_units()) {
    for (const plan::OptimizerState& state : footprint_.states)
      states_[static_cast<std::size_t>(unit)].push_back(new_state(state, shards, unit));
  }
}

at::Tensor Optimizer::new_state(const plan::OptimizerState& state, const shard::ModelShards& shards,
                                int unit) const {
  const at::Tensor master = shards.master(unit);
  const auto dtype = state.dtype ? shard::to_aten(*state.dtype) : moments_;
  const std::int64_t count = state.num_values(table_, shards.map().unit(unit));
  return at::zeros({count}, master.options().dtype(dtype));
}

void Optimizer::keep_ema(const shard::ModelShards& shards, double decay) {
  core::check(ema_decay_ == 0 && decay > 0 && decay < 1, "a mean of weights is kept once");
  ema_decay_ = decay;
  footprint_ = plan::with_ema(std::move(footprint_));
  const core::MemoryScope scope(core::MemoryUse::states);
  for (const int unit : shards.trained_units())
    states_[static_cast<std::size_t>(unit)].push_back(
        new_state(footprint_.states.back(), shards, unit));
}

void Optimizer::average(const shard::ModelShards& shards, int unit, std::int64_t step) {
  const double rate = (1 - ema_decay_) / (1 - std::pow(ema_decay_, static_cast<double>(step + 1)));
  const at::Tensor weight = shards.master(unit);
  at::Tensor mean = states_[static_cast<std::size_t>(unit)].back();
  const at::Device device = weight.device();
  if (path_ == model::Path::kernels && (device.is_cpu() || kernels::compute_on(device))) {
    dispatch(weight.scalar_type(), [&]<typename Weight>() {
      kernels::move_mean(elements<float>(mean), elements<const Weight>(weight),
                         static_cast<float>(rate), kernels::place_on(device));
    });
    return;
  }
  for (std::int64_t first = 0; first < mean.size(0); first += composed_elements) {
    const std::int64_t count = std::min(composed_elements, mean.size(0) - first);
    at::Tensor piece = mean.narrow(0, first, count);
    kernels::composed::move_mean_(piece, weight.narrow(0, first, count), rate);
  }
}

void Optimizer::publish_other_weights(shard::ModelShards& shards) const {
  core::check(has_other_weights(), "there are weights to evaluate");
  shards.release_all();
  for (const int unit : shards.trained_units())
    shards.publish_in_place(unit, keeps_ema() ? states_[static_cast<std::size_t>(unit)].back()
                                              : weights_to_evaluate(unit, shards.master(unit)));
}

at::Tensor Optimizer::weights_to_evaluate(int /*unit*/, const at::Tensor& /*master*/) const {
  core::check(false, "an optimizer that evaluates other weights has them");
  return {};
}

std::vector<StateTensor> Optimizer::kept(int unit) const {
  std::vector<StateTensor> all;
  for (std::size_t i = 0; i < footprint_.states.size(); ++i) {
    const plan::OptimizerState& each = footprint_.states[i];
    all.push_back({each.kind, state(unit, i), each.block, each.of});
  }
  return all;
}

at::Tensor Optimizer::state(int unit, std::size_t i_state) const {
  const auto& states = states_[static_cast<std::size_t>(unit)];
  return states.empty() ? at::Tensor() : states.at(i_state);
}

std::optional<kernels::RoundingKey> Optimizer::rounding(const Step& step) const {
  if (!settings_.rounds_stochastically()) return std::nullopt;
  return kernels::RoundingKey{seed_, step.number};
}

std::vector<Optimizer::Run> Optimizer::runs(const shard::ModelShards& shards, int unit) const {
  std::vector<Run> runs;
  for (const plan::ShardSlice& whole : shards.map().slices(unit, shards.shard_of(unit))) {
    const model::Parameter& row = table_.row(whole.row);
    const plan::ShardSlice slice = trained_part(row, whole);
    if (!row.trainable || slice.count == 0) continue;
    const double decay = row.decayed ? settings_.weight_decay : 0.0;
    const std::int64_t index =
        first_index_[static_cast<std::size_t>(slice.row)] + slice.tensor_offset;
    const bool is_next = !runs.empty() &&
                         runs.back().offset + runs.back().count == slice.shard_offset &&
                         runs.back().index + runs.back().count == index;
    if (is_next && runs.back().weight_decay == decay && runs.back().lr_ratio == row.lr_ratio) {
      runs.back().count += slice.count;
    } else {
      runs.push_back({slice.shard_offset, slice.count, decay, index, row.lr_ratio});
    }
  }
  return runs;
}

std::vector<Optimizer::Piece> Optimizer::pieces_of(const shard::ModelShards& shards, int unit,
                                                   const std::vector<Run>& runs) const {
  std::vector<Piece> pieces;
  for (const plan::ShardSlice& whole : shards.map().slices(unit, shards.shard_of(unit))) {
    const plan::ShardSlice slice = trained_part(table_.row(whole.row), whole);
    if (!table_.row(whole.row).trainable || slice.count == 0) continue;
    const auto run = std::ranges::find_if(runs, [&](const Run& each) {
      return each.offset <= slice.shard_offset && slice.shard_offset < each.offset + each.count;
    });
    core::check(run != runs.end(), "what is trained of a row lies in a run");
    Piece piece;
    static_cast<Run&>(piece) = *run;
    piece.index += slice.shard_offset - run->offset;
    piece.offset = slice.shard_offset;
    piece.count = slice.count;
    piece.row = slice.row;
    piece.tensor_offset = slice.tensor_offset;
    pieces.push_back(piece);
  }
  return pieces;
}

void Optimizer::step(shard::ModelShards& shards, std::int64_t step, double lr,
                     double gradient_scale, const std::vector<int>& next) {
  const bool offloads = shards.options().device != shards.options().state_device;
  timer_.begin();
  UnitMemory memory(shards, path_ == model::Path::kernels);
  for (const schedule::Event& event :
       schedule::make_update(shards.trained_units(), {.offloads = offloads}, next)) {
    const int unit = event.index;
    switch (event.action) {
      case schedule::Action::fetch:
        memory.fetch(unit);
        break;
      case schedule::Action::update:
        update(shards, unit, {memory.gradient(unit), memory.copy(unit), step, lr, gradient_scale});
        break;
      case schedule::Action::publish:
        memory.publish(unit);
        break;
      case schedule::Action::gather:
        shards.gather(unit);
        break;
      default:
        core::check(false, "optimizers compute nothing but new weights");
    }
  }
  timer_.end();
}

void Optimizer::step_unit(shard::ModelShards& shards, int unit, std::int64_t step, double lr) {
  core::check(shards.options().device == shards.options().state_device,
              "states of an update in backward are where the gradients are");
  UnitMemory memory(shards, path_ == model::Path::kernels);
  update(shards, unit, {memory.gradient(unit), memory.copy(unit), step, lr, 1.0});
  memory.publish(unit);
}

void Optimizer::update(shard::ModelShards& shards, int unit, const Step& step) {
  const std::vector<Run> all = runs(shards, unit);
  const at::Device device = shards.master(unit).device();
  const bool has_kernels = device.is_cpu() || (has_gpu_kernels() && kernels::compute_on(device));
  if (!has_kernels || path_ != model::Path::kernels) {
    update_by_compositions(shards, unit, all, step);
  } else {
    update_by_kernels(shards, unit, all, step);
    const bool is_new = step.copy.defined() && !step.copy.is_same(shards.published(unit));
    if (is_new) cast_the_rest(shards.master(unit), all, step.copy);
  }
  if (ema_decay_ > 0) average(shards, unit, step.number);
}

void Optimizer::cast_the_rest(const at::Tensor& master, const std::vector<Run>& runs,
                              const at::Tensor& copy) {
  std::int64_t done = 0;
  const auto cast_until = [&](std::int64_t end) {
    if (end > done) copy.narrow(0, done, end - done).copy_(master.narrow(0, done, end - done));
  };
  for (const Run& run : runs) {
    cast_until(run.offset);
    done = run.offset + run.count;
  }
  cast_until(master.size(0));
}

}  // namespace finetune::optim
