// SPDX-License-Identifier: Apache-2.0
#include "optim/kind.hpp"

#include <algorithm>

namespace finetune::optim {

bool Kind::reads(std::string_view key) const {
  return std::ranges::any_of(keys, [&](const OptimizerKey& own) { return own.name == key; });
}

const Kind* find_kind(const std::vector<Kind>& kinds, const std::string& name) {
  const auto found = std::ranges::find_if(kinds, [&](const Kind& k) { return k.name() == name; });
  return found == kinds.end() ? nullptr : &*found;
}

std::vector<std::string> unsigned_states(const std::vector<Kind>& kinds) {
  std::vector<std::string> names;
  for (const Kind& kind : kinds)
    for (const plan::OptimizerState& state : kind.footprint.states)
      if (!state.is_signed) names.push_back(state.kind);
  return names;
}

}  // namespace finetune::optim
