#pragma once
// SPDX-License-Identifier: Apache-2.0
// The meshes of a test's ranks that share matrices, sequences or experts.

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/trainer.hpp"

namespace finetune::tests {

/// Every mesh of this test's ranks that has tp, cp or, of a model with experts, ep; of eight ranks,
/// which fewer cores compute in turns, those with two of each.
inline std::vector<Arrangement> meshes(const plan::Numbers& numbers,
                                       TinyKind kind = TinyKind::own_head) {
  const int n = world().size();
  const model::Architecture architecture = tiny_architecture(kind);
  const bool has_experts = architecture.experts.num > 0;
  const bool remembers =
      std::ranges::any_of(architecture.layers, [](const auto& layer) { return layer.remembers(); });
  std::vector<Arrangement> all;
  const auto add = [&](int dp_shard, const Parts& parts) {
    if (parts.tp * parts.cp * parts.ep == 1) return;
    if (n == 8 && (parts.tp != 2 || parts.cp != 2 || parts.ep > 2)) return;
    const int rest = n / (parts.tp * parts.cp);
    all.push_back({.name = "",
                   .dp_shard = dp_shard,
                   .sharding = dp_shard == 1 && rest > 1 ? plan::Sharding::no_shard
                                                         : plan::Sharding::full_shard,
                   .numbers = numbers,
                   .kind = kind,
                   .parts = parts});
  };
  for (int tp = 1; tp <= n; ++tp) {
    for (int cp = 1; tp * cp <= n; ++cp) {
      // Two query heads: no third rank has any.
      if (n % (tp * cp) != 0 || tp > 2 || (remembers && cp > 1)) continue;
      const int rest = n / (tp * cp);
      for (int dp_shard = 1; dp_shard <= rest; ++dp_shard)
        for (int ep = 1; ep <= (has_experts ? dp_shard * cp : 1); ++ep)
          if (rest % dp_shard == 0 && dp_shard * cp % ep == 0) add(dp_shard, {cp, tp, ep});
    }
  }
  return all;
}

inline std::string name_of(const Arrangement& setup) {
  return "dp_shard " + std::to_string(setup.dp_shard) + " cp " + std::to_string(setup.parts.cp) +
         " tp " + std::to_string(setup.parts.tp) + " ep " + std::to_string(setup.parts.ep) + " " +
         setup.adapter.name + (setup.blocks == train::Blocks::kept ? "" : ", blocks again");
}

}  // namespace finetune::tests
