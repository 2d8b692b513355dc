// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/link_keeper.hpp"

#include <fmt/format.h>

#include <utility>

#include "comm/activity.hpp"

namespace finetune::train {

LinkKeeper::LinkKeeper(const world::World& world, Clock clock)
    : world_(world), clock_(std::move(clock)), hosts_(world.world.gather_text(world.host)) {
  own_rates();
}

std::vector<comm::LinkRate> LinkKeeper::own_rates() const {
  comm::Activity* activity = world_.world.activity();
  return activity != nullptr ? activity->link_rates().take() : std::vector<comm::LinkRate>();
}

std::optional<metrics::LinkReport> LinkKeeper::report(Reporter& reporter) {
  const auto rates = metrics::gather_links(world_.world, own_rates(), hosts_);
  if (!world_.world.is_root()) return std::nullopt;
  metrics::LinkReport report = watch_.look(rates, clock_());
  constexpr double giga = 1e9;
  for (const metrics::SlowLink& slow : report.became_slow)
    reporter.warn(fmt::format(
        "the links of {} between the ranks on {} are slow, and so is the whole run: for a minute "
        "no collective has sent half of the usual {:.3g} GB/s per rank, the best one now {:.3g} "
        "GB/s. finetune check measures the links between nodes; if it stays so, leave the slow "
        "node out.",
        slow.axis, slow.nodes, slow.usual_bytes_per_s / giga, slow.bytes_per_s / giga));
  for (const metrics::SlowLink& link : report.recovered)
    reporter.info(
        fmt::format("the links of {} between the ranks on {} have recovered: {:.3g} GB/s per "
                    "rank, usual are {:.3g} GB/s",
                    link.axis, link.nodes, link.bytes_per_s / giga, link.usual_bytes_per_s / giga));
  return report;
}

}  // namespace finetune::train
