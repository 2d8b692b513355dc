#pragma once
// SPDX-License-Identifier: Apache-2.0
// Gathers how fast the links between ranks are, and warns of those that became slow.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "metrics/links.hpp"
#include "train/run/detail/reporter.hpp"
#include "world/world.hpp"

namespace finetune::train {

class LinkKeeper {
 public:
  using Clock = std::function<double()>;  ///< seconds

  /// What communicated before is left out. Collective on the world.
  LinkKeeper(const world::World& world, Clock clock);

  /// Of the time since the last one; nothing where no collective was large enough. Warns once of a
  /// link that stays slow, and says when it has recovered. Collective on the world; what it returns
  /// is the root's.
  std::optional<metrics::LinkReport> report(Reporter& reporter);

 private:
  std::vector<comm::LinkRate> own_rates() const;

  const world::World& world_;
  Clock clock_;
  std::vector<std::string> hosts_;  ///< of all ranks, on the root
  metrics::LinkWatch watch_;
};

}  // namespace finetune::train
