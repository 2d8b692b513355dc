#pragma once
// SPDX-License-Identifier: Apache-2.0
// Links between nodes: how fast messages of MPI get from each to others.

#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "preflight/detail/report.hpp"

namespace finetune::preflight {

struct Link {
  int from = 0;  ///< nodes
  int to = 0;
  double gbit_per_s = 0;
  double latency_us = 0;
};

/// How far apart, in a ring of `num_nodes`, the nodes are that are measured together: all
/// distances up to 17 nodes, which makes a matrix; powers of two beyond, so that a node has about
/// log2(num_nodes) links in each direction.
std::vector<int> distances(int num_nodes);

/// In a round for each distance every node sends to the one so far ahead. Each rank gets the links
/// that end at it. Collective on `leaders`, which has one rank a node.
std::vector<Link> measure_links(const comm::Communicator& leaders);

/// Everybody's links at rank 0; nothing elsewhere. Collective on `leaders`.
std::vector<Link> gather_links(const comm::Communicator& leaders, const std::vector<Link>& own);

/// The slowest rate that passes: what the deck asks for, or with 0 a fifth of what is usual in this
/// job. Two nodes have nothing to be compared with: any rate passes.
double least_rate(double asked_gbit_per_s, std::size_t num_nodes, double usual_gbit_per_s);

/// Names links below least_rate, links much slower than most, and nodes all of whose links are.
/// Below 100 Gbit/s it recommends more.
Finding judge_links(const std::vector<std::string>& nodes, std::span<const Link> links,
                    double asked_gbit_per_s);

/// The median; 0 of nothing.
double median(std::vector<double> values);

}  // namespace finetune::preflight
