#pragma once
// SPDX-License-Identifier: Apache-2.0
// Sums over ranks of several nodes, that go from node to node.

#include "comm/detail/node_map.hpp"
#include "comm/mpi/detail/pairwise.hpp"
#include "comm/mpi/detail/shared_window.hpp"

namespace finetune::comm {

/// All ranks of a node lay their terms of a part into the window. The rank that stands in for the
/// part's owner adds them to a running sum, which it gets from the node after it and hands to the
/// node before it.
///
/// The sum begins on the owner's node and ends there, so that terms are added exactly as in
/// exchange_pairwise. Where any order gives the same bits, it begins on the node before the
/// owner's, and saves a hop.
///
/// Collective on the ranks of `map`.
void exchange_in_chain(const NodeMap& map, SharedWindow& window, const PointToPoint& messages,
                       const Exchange& exchange);

}  // namespace finetune::comm
