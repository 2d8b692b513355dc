// SPDX-License-Identifier: Apache-2.0
#include "train/stages.hpp"

#include <algorithm>

namespace finetune::train {
namespace {

void insert(std::vector<int>& units, int unit) {
  if (std::find(units.begin(), units.end(), unit) == units.end()) units.push_back(unit);
}

}  // namespace

Stages::Stages(const model::Model& model, std::int64_t num_layers, const shard::ModelShards& shards)
    : units_(static_cast<std::size_t>(num_layers) + 2), completed_(units_.size()) {
  units_.front().push_back(shards.unit_of(model.embedding_row()));
  for (std::int64_t i = 0; i < num_layers; ++i) {
    const model::RowRange rows = model.block_rows(i);
    for (int row = rows.first; row < rows.first + rows.num; ++row)
      insert(units_[static_cast<std::size_t>(block(i))], shards.unit_of(row));
  }
  units_.back().push_back(shards.unit_of(model.final_norm_row()));
  insert(units_.back(), shards.unit_of(model.head_row()));

  for (const int unit : units_.front()) {
    const bool is_everywhere = std::all_of(units_.begin(), units_.end(), [&](const auto& units) {
      return std::find(units.begin(), units.end(), unit) != units.end();
    });
    if (is_everywhere) everywhere_.push_back(unit);
  }

  std::vector<int> seen;
  for (std::size_t stage = 0; stage < units_.size(); ++stage) {
    for (const int unit : units_[stage]) {
      if (std::find(seen.begin(), seen.end(), unit) == seen.end())
        completed_[stage].push_back(unit);
      insert(seen, unit);
    }
  }
}

OpenStage::OpenStage(shard::ModelShards& shards, const std::vector<int>& units)
    : shards_(shards), units_(units) {
  for (const int unit : units_)
    shards_.open(unit);
}

OpenStage::~OpenStage() noexcept(false) {
  if (std::uncaught_exceptions() > num_exceptions_) return;
  for (const int unit : units_)
    shards_.close(unit);
}

}  // namespace finetune::train
