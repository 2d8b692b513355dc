#pragma once
// SPDX-License-Identifier: Apache-2.0
// How fast the links between ranks are while a run goes on, and which of them became slow.

#include <deque>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/link_rates.hpp"
#include "metrics/detail/spread.hpp"

namespace finetune::metrics {

/// Of a group of ranks, in the time between two reports: the best of its collectives, on the rank
/// that saw the most.
struct GroupRate {
  comm::LinkRate rate;
  std::string nodes;  ///< "n1, n2"
};

/// A group whose best collectives stayed below half of the usual ones for a minute or more.
struct SlowLink {
  std::string axis;
  std::string nodes;
  double bytes_per_s = 0;        ///< now
  double usual_bytes_per_s = 0;  ///< median
};

struct LinkReport {
  struct Axis {
    Spread bytes_per_s;  ///< over its groups
    std::string slowest_nodes;
  };
  std::map<std::string, Axis> axes = {};
  std::vector<SlowLink> slow = {};
  std::vector<SlowLink> became_slow = {};  ///< those of `slow` that no report of this spell had
  std::vector<SlowLink> recovered = {};    ///< that an earlier report had

  bool is_empty() const { return axes.empty(); }
};

/// `own`: of this rank; `hosts`: of all ranks, on the root. Collective on `world`; the result is
/// for the root.
std::vector<GroupRate> gather_links(const comm::Communicator& world,
                                    std::span<const comm::LinkRate> own,
                                    const std::vector<std::string>& hosts);

/// Knows what is usual of each group. Compares a group with itself alone: groups of one axis may
/// well lie on links of different kinds.
class LinkWatch {
 public:
  static constexpr double slow_part = 0.5;  ///< of the median
  static constexpr double slow_after_s = 60;
  /// A single report may be of a handful of collectives between two long pauses.
  static constexpr int fewest_slow = 2;
  /// Reports of a group before it is judged, and those that its median is of.
  static constexpr std::size_t fewest = 10, most = 300;

  /// `rates`: of the time since the last call, up to `now_s` of a clock that never goes back.
  LinkReport look(std::span<const GroupRate> rates, double now_s);

 private:
  struct Group {
    std::deque<double> usual;  ///< rates that were not slow, oldest first
    double slow_since_s = 0;   ///< where num_slow > 0
    int num_slow = 0;          ///< reports in a row
    std::int64_t seen_in = 0;  ///< the last report that had it
    bool is_told = false;
  };
  void judge(const GroupRate& of, double now_s, LinkReport& report);

  std::map<std::tuple<std::string, int, int>, Group> groups_;
  double looked_s_ = 0;  ///< when the last call was
  std::int64_t num_looks_ = 0;
};

/// A field of a step's object in metrics.jsonl: "links": {...}.
std::string to_json_field(const LinkReport& report);

}  // namespace finetune::metrics
