#pragma once
// SPDX-License-Identifier: Apache-2.0
// Clocks of hosts differ: a collective of several ranks ends on all of them at about the same time.

#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include "trace/chrome_trace.hpp"

namespace finetune::trace {

/// Names a collective on all ranks of its group.
struct CollectiveKey {
  std::string row;  ///< of the same thread
  std::string axis;
  int first_rank = 0;
  int num_ranks = 1;
  std::int64_t number = 0;

  friend auto operator<=>(const CollectiveKey&, const CollectiveKey&) = default;
};

/// Whether an event is a collective, of one rank or of several.
bool is_collective(const Event& event);
CollectiveKey key_of(const Event& event);

struct Alignment {
  double largest_shift_us = 0;      ///< of a clock to that of the first rank
  double left_us = 0;               ///< median difference of ends, of pairs of ranks
  std::size_t num_collectives = 0;  ///< that several of the ranks have
  std::vector<int> alone = {};  ///< ranks that share no collective with the first, even over others
};

/// Shifts `base_ns` of ranks to the clock of the first. Ranks of one host have one clock.
Alignment align_clocks(std::vector<RankTrace>& ranks);

}  // namespace finetune::trace
