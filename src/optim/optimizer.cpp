// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include "kernels/adamw8bit.hpp"
#include "optim/adamw.hpp"
#include "optim/adamw8bit.hpp"
#include "shard/host_copy.hpp"

namespace finetune::optim {

Optimizer::Optimizer(const Settings& settings, const model::ParameterTable& table, model::Path path,
                     std::uint64_t seed)
    : settings_(settings), table_(table), path_(path), seed_(seed) {
  std::int64_t index = 0;
  for (const model::Parameter& row : table.rows) {
    first_index_.push_back(index);
    if (row.trainable) index += row.count();
  }
}

std::optional<kernels::RoundingKey> Optimizer::rounding(const Step& step) const {
  if (!settings_.rounds_stochastically()) return std::nullopt;
  return kernels::RoundingKey{seed_, step.number};
}

std::vector<Optimizer::Run> Optimizer::runs(const shard::ModelShards& shards, int unit) const {
  std::vector<Run> runs;
  for (const plan::ShardSlice& slice : shards.map().slices(unit, shards.fsdp().rank())) {
    const model::Parameter& row = table_.row(slice.row);
    if (!row.trainable) continue;
    const double decay = row.decayed ? settings_.weight_decay : 0.0;
    const std::int64_t index =
        first_index_[static_cast<std::size_t>(slice.row)] + slice.tensor_offset;
    const bool is_next = !runs.empty() &&
                         runs.back().offset + runs.back().count == slice.shard_offset &&
                         runs.back().index + runs.back().count == index;
    if (is_next && runs.back().weight_decay == decay) {
      runs.back().count += slice.count;
    } else {
      runs.push_back({slice.shard_offset, slice.count, decay, index});
    }
  }
  return runs;
}

void Optimizer::step(shard::ModelShards& shards, std::int64_t step, double lr,
                     double gradient_scale) {
  for (const int unit : shards.trained_units()) {
    const bool by_kernels = shards.master(unit).is_cpu() && path_ == model::Path::kernels;
    if (by_kernels) {
      const shard::HostCopy gradient(shards.gradient(unit));
      update_on_host(shards, unit, runs(shards, unit), {gradient.host(), step, lr, gradient_scale});
    } else {
      update_on_device(shards, unit, runs(shards, unit),
                       {shards.gradient(unit), step, lr, gradient_scale});
    }
    if (!by_kernels || !shards.published(unit).is_cpu()) shards.publish(unit);
  }
}

std::int64_t block_elements(const Settings& settings) {
  return settings.is_8bit() ? kernels::moment_block : 1;
}

std::unique_ptr<Optimizer> make_optimizer(const Settings& settings,
                                          const model::ParameterTable& table,
                                          const shard::ModelShards& shards, at::ScalarType moments,
                                          std::uint64_t seed) {
  constexpr auto path = model::Path::kernels;
  if (settings.is_8bit()) return std::make_unique<AdamW8bit>(settings, table, shards, path, seed);
  return std::make_unique<AdamW>(settings, table, shards, moments, path, seed);
}

}  // namespace finetune::optim
