// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/replicas.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "comm/agree.hpp"
#include "core/hash.hpp"
#include "model/parameter_table.hpp"

namespace finetune::train {
namespace {

std::string hash_of(const at::Tensor& shard) {
  const at::Tensor host = shard.cpu();
  return core::fingerprint(
      std::as_bytes(std::span(static_cast<const char*>(host.const_data_ptr()), host.nbytes())));
}

/// Remainders of two sums over elements, of numbers that each gives with its place: such sums can
/// be added up over any cut.
struct Sums {
  static constexpr std::uint64_t modulus = std::uint64_t{1} << 32;
  std::uint64_t low = 0, high = 0;

  /// Source of the constants: Steele et al. 2014, SplitMix.
  void add(std::uint64_t bits, std::uint64_t place) {
    std::uint64_t mixed = (place << 32 ^ bits) + 0x9E3779B97F4A7C15;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
    mixed ^= mixed >> 31;
    low = (low + mixed % modulus) % modulus;
    high = (high + mixed / modulus) % modulus;
  }
};

/// Adds the elements of `run`, the first of which has place `first` in what a rank holds of a row.
template <typename Bits>
void add_elements(const at::Tensor& run, std::int64_t first, Sums& sums) {
  const at::Tensor host = run.cpu().contiguous();
  const auto* const bytes = static_cast<const char*>(host.const_data_ptr());
  for (std::int64_t i = 0; i < host.numel(); ++i) {
    Bits bits = 0;
    std::memcpy(&bits, bytes + i * static_cast<std::int64_t>(sizeof(Bits)), sizeof(Bits));
    sums.add(bits, static_cast<std::uint64_t>(first + i));
  }
}

/// Of each row of a unit that several ranks of tp hold, with the name that these give it: sums over
/// the master weights of all shards. Collective on the ranks of the unit.
std::map<std::string, std::string> sums_of_held(const shard::ModelShards& shards, int unit) {
  std::map<int, Sums> of_row;
  for (const int i : shards.map().unit(unit).rows) {
    const model::Parameter& row = shards.table().row(i);
    if (row.held && row.held->num_holders > 1 && row.count() > 0) of_row[i] = {};
  }
  const at::Tensor master = shards.master(unit);
  for (const plan::ShardSlice& slice : shards.map().slices(unit, shards.shard_of(unit))) {
    const auto sums = of_row.find(slice.row);
    if (sums == of_row.end()) continue;
    const at::Tensor run = master.narrow(0, slice.shard_offset, slice.count);
    run.element_size() == 2 ? add_elements<std::uint16_t>(run, slice.tensor_offset, sums->second)
                            : add_elements<std::uint32_t>(run, slice.tensor_offset, sums->second);
  }
  std::vector<std::int64_t> wire;
  for (const auto& [row, sums] : of_row)
    for (const std::uint64_t sum : {sums.low, sums.high})
      wire.push_back(static_cast<std::int64_t>(sum));
  shards.ranks_of(unit).all_reduce(std::span<std::int64_t>(wire), comm::Reduce::sum);
  std::map<std::string, std::string> named;
  std::size_t next = 0;
  for (const auto& [i, sums] : of_row) {
    const model::Parameter& row = shards.table().row(i);
    const auto modulus = static_cast<std::int64_t>(Sums::modulus);
    named[fmt::format("{} {}", row.name, fmt::join(row.held->boxes.front().begin, ","))] =
        fmt::format("{:08x}{:08x}", wire[next + 1] % modulus, wire[next] % modulus);
    next += 2;
  }
  return named;
}

/// What is not equal of what several ranks of tp hold of a unit: the master weights, row by row,
/// however each has cut them into shards. Collective on tp and on the ranks of the unit.
std::string unequal_parts(const shard::ModelShards& shards, int unit, std::int64_t step) {
  const auto& tp = shards.groups().tp;
  if (!tp) return "";
  std::string told;
  for (const auto& [name, sums] : sums_of_held(shards, unit))
    told += name + " " + sums + "\n";
  std::map<std::string, std::pair<std::string, int>> first;
  const auto all = tp->communicator().all_gather_text(told);
  for (int rank = 0; rank < std::ssize(all); ++rank) {
    std::istringstream lines(all[static_cast<std::size_t>(rank)]);
    std::string name, box, sums;
    while (lines >> name >> box >> sums) {
      const auto [there, is_new] = first.try_emplace(name + " " + box, sums, rank);
      if (is_new || there->second.first == sums) continue;
      return core::to_string(
          {fmt::format("step {}", step),
           fmt::format("ranks {} and {} of tp have different weights of {}", there->second.second,
                       rank, name),
           "what both hold is the same on each, bit for bit",
           "Start again from the last checkpoint; if it happens again, look at the memory "
           "of the nodes of these ranks."});
    }
  }
  return "";
}

/// What is not equal of the copies of a unit. Collective on `copies`.
std::string unequal_copies(const shard::ModelShards& shards, const optim::Optimizer& optimizer,
                           const comm::Communicator& copies, int unit, std::int64_t step) {
  std::string hash = hash_of(shards.master(unit));
  for (const optim::StateTensor& kept : optimizer.kept(unit))
    hash += hash_of(kept.values);
  const auto hashes = copies.all_gather_text(hash);
  const auto other = std::find_if(hashes.begin(), hashes.end(),
                                  [&](const auto& h) { return h != hashes.front(); });
  if (other == hashes.end()) return "";
  return core::to_string(
      {fmt::format("step {}", step),
       fmt::format("copy {} of the model has other weights or moments than copy 0 in unit \"{}\"",
                   other - hashes.begin(), shards.map().unit(unit).name),
       "replicated state is the same on every rank, bit for bit",
       "Start again from the last checkpoint; if it happens again, look at the memory of the nodes "
       "that differ."});
}

}  // namespace

void require_equal_replicas(const shard::ModelShards& shards, const optim::Optimizer& optimizer,
                            const world::World& world, std::int64_t step) {
  comm::agree_all(world.world, [&] {
    // Groups of copies and of tp cross each other: who knows of a difference goes on with the
    // others.
    std::string problem;
    for (const int unit : shards.trained_units()) {
      for (std::string text : {unequal_copies(shards, optimizer, world.dp_replicate, unit, step),
                               unequal_parts(shards, unit, step)})
        if (problem.empty()) problem = std::move(text);
    }
    if (!problem.empty()) throw core::Error(core::ErrorKind::numbers, problem);
  });
}

}  // namespace finetune::train
