#pragma once
// SPDX-License-Identifier: Apache-2.0
// How far the wall clocks of the nodes are apart.

#include <functional>

#include "comm/communicator.hpp"

namespace finetune::preflight {

/// Seconds since 1970, by this node's wall clock.
double wall_clock_s();

/// How far `clock` of this rank is ahead of that of rank 0. Each rank asks one that knows already
/// (the number of ranks that do doubles from round to round), a few times; the shortest answer
/// counts, and half of its way is what it may be wrong by. Collective on `leaders`.
double clock_offset_s(const comm::Communicator& leaders,
                      const std::function<double()>& clock = wall_clock_s);

}  // namespace finetune::preflight
