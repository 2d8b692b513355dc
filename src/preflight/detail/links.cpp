// SPDX-License-Identifier: Apache-2.0
#include "preflight/detail/links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "core/clock.hpp"

namespace finetune::preflight {
namespace {

constexpr int largest_matrix = 17;
constexpr double recommended_gbit_per_s = 100;
// Of the median. Links of one network differ by less; congestion comes and goes.
constexpr double slow = 0.5;
// Nothing but a fault makes a link of the same network five times slower than most.
constexpr double broken = 0.2;

constexpr int num_short = 16;
constexpr int num_long = 2;
// A longer message only where the one before took less than so long on every link. The shortest
// tells only links that are slow indeed: it may pass in the buffers on its way, and be held up by
// anything.
constexpr std::array<std::pair<std::int64_t, double>, 3> messages = {
    {{256 << 10, 0.0}, {2 << 20, 0.25}, {8 << 20, 0.1}}};

struct Ring {
  const comm::Communicator& leaders;
  int to = 0;
  int from = 0;
};

double latency_s(const Ring& ring) {
  std::array<std::byte, 8> out{}, in{};
  std::vector<double> times;
  for (int i = 0; i < num_short + 2; ++i) {
    const core::Stopwatch watch;
    ring.leaders.pass(out, ring.to, in, ring.from);
    if (i >= 2) times.push_back(watch.seconds());
  }
  return median(times);
}

/// Bytes in a second to this node while all nodes send.
double bytes_per_s(const Ring& ring, std::vector<std::byte>& out, std::vector<std::byte>& in) {
  double rate = 0;
  double longest = 0;
  for (const auto& [bytes, limit_s] : messages) {
    if (longest > limit_s && limit_s > 0) break;
    double best = 1e9;
    const auto n = static_cast<std::size_t>(bytes);
    for (int i = 0; i < num_long; ++i) {
      ring.leaders.barrier();
      best = std::min(best, ring.leaders.pass(std::span(out).first(n), ring.to,
                                              std::span(in).first(n), ring.from));
    }
    longest = ring.leaders.all_reduce(best, comm::Reduce::max);
    rate = static_cast<double>(bytes) / best;
  }
  return rate;
}

/// Median over the links of each node, in both directions.
std::vector<double> medians_of_nodes(std::size_t num_nodes, std::span<const Link> links) {
  std::vector<std::vector<double>> of_node(num_nodes);
  for (const Link& link : links) {
    of_node[static_cast<std::size_t>(link.from)].push_back(link.gbit_per_s);
    of_node[static_cast<std::size_t>(link.to)].push_back(link.gbit_per_s);
  }
  std::vector<double> medians;
  for (const auto& values : of_node)
    medians.push_back(median(values));
  return medians;
}

void judge_nodes(const std::vector<std::string>& nodes, std::span<const Link> links, double usual,
                 double least, std::set<int>& slow_nodes, Finding& finding) {
  if (nodes.size() < 3) return;
  const auto medians = medians_of_nodes(nodes.size(), links);
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (medians[node] >= slow * usual) continue;
    slow_nodes.insert(static_cast<int>(node));
    finding.problems.push_back(
        {medians[node] < least ? Grade::bad : Grade::warning,
         {nodes[node], fmt::format("its links reach {:.3g} Gbit/s", medians[node]),
          fmt::format("those of other nodes {:.3g}", usual),
          "Leave the node out (sbatch --exclude), and tell the administrator; "
          "parallel.min_link_gbit_per_s sets what is good enough."}});
  }
}

std::string matrix(const std::vector<std::string>& nodes, std::span<const Link> links) {
  std::vector<std::vector<std::string>> cells(nodes.size(),
                                              std::vector<std::string>(nodes.size(), "-"));
  for (const Link& link : links)
    cells[static_cast<std::size_t>(link.from)][static_cast<std::size_t>(link.to)] =
        fmt::format("{:.3g} ({:.0f})", link.gbit_per_s, link.latency_us);
  std::size_t width = 12;
  for (const std::string& name : nodes)
    width = std::max(width, name.size());
  std::string text = fmt::format("  Gbit/s (us) from, to:\n  {:<{}}", "", width);
  for (const std::string& name : nodes)
    text += fmt::format("  {:>{}}", name, width);
  for (std::size_t from = 0; from < nodes.size(); ++from) {
    text += fmt::format("\n  {:<{}}", nodes[from], width);
    for (const std::string& cell : cells[from])
      text += fmt::format("  {:>{}}", cell, width);
  }
  return text;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

std::vector<int> distances(int num_nodes) {
  std::vector<int> all;
  for (int distance = 1; distance < num_nodes;
       num_nodes <= largest_matrix ? ++distance : distance *= 2)
    all.push_back(distance);
  return all;
}

std::vector<Link> measure_links(const comm::Communicator& leaders) {
  const int size = leaders.size();
  std::vector<Link> links;
  std::vector<std::byte> out(static_cast<std::size_t>(messages.back().first)), in(out.size());
  for (const int distance : distances(size)) {
    const Ring ring{leaders, (leaders.rank() + distance) % size,
                    (leaders.rank() - distance + size) % size};
    leaders.barrier();
    Link link{.from = ring.from, .to = leaders.rank()};
    link.latency_us = 1e6 * latency_s(ring);
    link.gbit_per_s = 8e-9 * bytes_per_s(ring, out, in);
    links.push_back(link);
  }
  return links;
}

std::vector<Link> gather_links(const comm::Communicator& leaders, const std::vector<Link>& own) {
  std::vector<Link> all;
  for (const auto& bytes : leaders.gather_bytes(std::as_bytes(std::span(own)))) {
    const std::size_t first = all.size();
    all.resize(first + bytes.size() / sizeof(Link));
    if (!bytes.empty()) std::memcpy(&all[first], bytes.data(), bytes.size());
  }
  return all;
}

double least_rate(double asked_gbit_per_s, std::size_t num_nodes, double usual_gbit_per_s) {
  if (asked_gbit_per_s > 0) return asked_gbit_per_s;
  return num_nodes < 3 ? 0 : broken * usual_gbit_per_s;
}

Finding judge_links(const std::vector<std::string>& nodes, std::span<const Link> links,
                    double asked_gbit_per_s) {
  Finding finding{.subject = "links", .text = "one node"};
  if (links.empty()) return finding;
  std::vector<double> rates, latencies;
  for (const Link& link : links) {
    rates.push_back(link.gbit_per_s);
    latencies.push_back(link.latency_us);
  }
  const double usual = median(rates);
  const auto [least, most] = std::ranges::minmax(rates);
  finding.text = fmt::format("{:.3g} Gbit/s ({:.3g} to {:.3g}), {:.0f} us between nodes", usual,
                             least, most, median(latencies));
  const double least_gbit_per_s = least_rate(asked_gbit_per_s, nodes.size(), usual);
  std::set<int> slow_nodes;
  judge_nodes(nodes, links, usual, least_gbit_per_s, slow_nodes, finding);
  bool is_told = !finding.problems.empty();
  for (const Link& link : links) {
    const bool is_bad = link.gbit_per_s < least_gbit_per_s;
    if (slow_nodes.contains(link.from) || slow_nodes.contains(link.to)) continue;
    if (!is_bad && link.gbit_per_s >= slow * usual) continue;
    is_told = true;
    finding.problems.push_back(
        {is_bad ? Grade::bad : Grade::warning,
         {fmt::format("{} -> {}", nodes[static_cast<std::size_t>(link.from)],
                      nodes[static_cast<std::size_t>(link.to)]),
          fmt::format("the link reaches {:.3g} Gbit/s", link.gbit_per_s),
          is_bad && asked_gbit_per_s > 0
              ? fmt::format("parallel.min_link_gbit_per_s = {:.3g}", asked_gbit_per_s)
              : fmt::format("other links {:.3g}", usual),
          "Make sure that MPI and NCCL use the fast network; leave out a node that cannot, or set "
          "parallel.min_link_gbit_per_s to what is good enough."}});
  }
  if (!is_told && usual < recommended_gbit_per_s) {
    finding.warn({"links", fmt::format("nodes are joined by {:.3g} Gbit/s", usual),
                  "training over several nodes is rarely fast below 100",
                  "Make sure that MPI and NCCL use the fast network; HYBRID_SHARD sends least. "
                  "parallel.min_link_gbit_per_s = 10.0, for example, rejects slower ones."});
  }
  if (nodes.size() <= 8) finding.details = matrix(nodes, links);
  shorten(finding);
  return finding;
}

}  // namespace finetune::preflight
