// SPDX-License-Identifier: Apache-2.0
#include "trace/clocks.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace finetune::trace {
namespace {

/// Ends since 1970, by index of the rank.
using Ends = std::map<CollectiveKey, std::map<std::size_t, std::int64_t>>;

/// Of those after which every rank has heard of every other.
bool brings_together(const Event& event) {
  constexpr const char* names[] = {"all_reduce", "all_gather", "barrier", "all_to_all"};
  const std::string name = event.args.value("collective", "");
  return std::ranges::find(names, name) != std::end(names) && event.args.value("num_ranks", 1) > 1;
}

Ends ends_of(const std::vector<RankTrace>& ranks) {
  Ends ends;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    for (const Event& event : ranks[i].events)
      if (is_collective(event) && brings_together(event))
        ends[key_of(event)][i] = ranks[i].base_ns + event.end_ns;
  return ends;
}

std::int64_t median(std::vector<std::int64_t>& values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

bool is_collective(const Event& event) {
  return !event.is_counter && event.args.contains("collective");
}

CollectiveKey key_of(const Event& event) {
  const core::Json& args = event.args;
  return {event.row, args.at("axis").get<std::string>(), args.at("first_rank").get<int>(),
          args.at("num_ranks").get<int>(), args.at("number").get<std::int64_t>()};
}

Alignment align_clocks(std::vector<RankTrace>& ranks) {
  Ends ends = ends_of(ranks);
  std::erase_if(ends, [](const auto& each) { return each.second.size() < 2; });
  Alignment made{.num_collectives = ends.size()};
  // By host; a rank that does not tell its host is one of its own.
  const auto host_of = [&](std::size_t rank) {
    const std::string& name = ranks[rank].host;
    return name.empty() ? std::to_string(ranks[rank].rank) : name;
  };
  std::map<std::string, std::int64_t> shifts;
  if (!ranks.empty()) shifts[host_of(0)] = 0;
  // Each round finds those that share a collective with one that is known.
  for (bool is_new = true; is_new;) {
    is_new = false;
    std::map<std::string, std::vector<std::int64_t>> found;
    for (const auto& [key, of_ranks] : ends) {
      const auto known = std::ranges::find_if(
          of_ranks, [&](const auto& each) { return shifts.contains(host_of(each.first)); });
      if (known == of_ranks.end()) continue;
      for (const auto& [rank, end_ns] : of_ranks)
        if (!shifts.contains(host_of(rank)))
          found[host_of(rank)].push_back(known->second + shifts[host_of(known->first)] - end_ns);
    }
    for (auto& [host, differences] : found) {
      shifts[host] = median(differences);
      is_new = true;
    }
  }
  std::vector<std::int64_t> left;
  for (const auto& [key, of_ranks] : ends) {
    const auto first = *of_ranks.begin();
    for (const auto& [rank, end_ns] : of_ranks) {
      if (rank == first.first || !shifts.contains(host_of(rank)) ||
          !shifts.contains(host_of(first.first)))
        continue;
      left.push_back(
          std::abs(end_ns + shifts[host_of(rank)] - first.second - shifts[host_of(first.first)]));
    }
  }
  if (!left.empty()) made.left_us = static_cast<double>(median(left)) * 1e-3;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto shift = shifts.find(host_of(i));
    if (shift == shifts.end()) {
      made.alone.push_back(ranks[i].rank);
      continue;
    }
    ranks[i].base_ns += shift->second;
    made.largest_shift_us =
        std::max(made.largest_shift_us, std::abs(static_cast<double>(shift->second)) * 1e-3);
  }
  return made;
}

}  // namespace finetune::trace
