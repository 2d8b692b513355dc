// SPDX-License-Identifier: Apache-2.0
#include "schedule/stages.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace finetune::schedule {
namespace {

bool contains(const std::vector<int>& units, int unit) {
  return std::ranges::find(units, unit) != units.end();
}

void insert(std::vector<int>& units, int unit) {
  if (!contains(units, unit)) units.push_back(unit);
}

}  // namespace

Stages::Stages(std::vector<std::vector<int>> units_of_stages, std::vector<Unit> units)
    : of_stages_(std::move(units_of_stages)),
      units_(std::move(units)),
      completed_(of_stages_.size()) {
  core::check(of_stages_.size() >= 2, "a pass has an embedding and a head");
  for (std::size_t stage = 1; stage < of_stages_.size(); ++stage) {
    for (const int unit : of_stages_[stage])
      if (contains(of_stages_[stage - 1], unit)) insert(all_along_, unit);
  }
  // What the embedding reads in backward has no neighbour there.
  for (const auto& of_stage : of_stages_)
    for (const int unit : of_stage)
      if (this->unit(unit).stays_gathered) insert(all_along_, unit);
  std::vector<int> seen;
  for (std::size_t stage = 0; stage < of_stages_.size(); ++stage) {
    for (const int unit : of_stages_[stage]) {
      if (!contains(seen, unit)) completed_[stage].push_back(unit);
      insert(seen, unit);
    }
  }
}

}  // namespace finetune::schedule
