#pragma once
// SPDX-License-Identifier: Apache-2.0
// A group of ranks and what they do together. Passed to its users, never looked up.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"

namespace finetune::comm {

class Activity;
struct Details;

enum class Reduce { sum, min, max };

/// A cheap handle to a communicator over MPI. Default-constructed it is a world of one rank that
/// needs no MPI: every collective then copies its input.
///
/// All functions but rank(), size(), is_root(), name(), activity(), details() and node() are
/// collective on the communicator: every rank calls them, in the same order. They block. Counts are
/// elements. Throws: ErrorKind::environment if MPI reports an error; ErrorKind::bug for counts MPI
/// cannot take.
class Communicator {
 public:
  Communicator() = default;

  int rank() const;
  int size() const;
  bool is_root() const { return rank() == 0; }
  const std::string& name() const;
  /// Where this rank records what it is doing; every blocking collective does, on Track::main.
  /// nullptr without MPI.
  Activity* activity() const;
  /// What Activity records of a collective of this communicator, with what it is for.
  Details details(std::int64_t bytes) const;
  /// The node of this rank, by its number in the job (Topology); 0 without MPI.
  int node() const;

  /// Ranks with equal `color` form a new communicator, ordered by `key`, then by rank. What only
  /// some ranks do is not watched: the watchdog counts what all have done.
  enum class Watched { yes, no };
  Communicator split(int color, int key, std::string name, Watched watched = Watched::yes) const;
  /// The same ranks, whose messages never meet those of this one: for another thread.
  Communicator dup(std::string name) const;
  /// The same ranks, this one as if it were on node `node`, also in what is made of the new one: so
  /// that one machine can stand for several.
  Communicator as_on_node(int node) const;

  void barrier() const;

  /// Every rank passes as many bytes. Many of them cross to each other node once.
  void broadcast(std::span<std::byte> bytes, int root = 0) const;
  /// The root's text on every rank; what the others pass is ignored.
  std::string broadcast_text(std::string text, int root = 0) const;

  /// Shapes: shard [count] -> full [size() * count], in rank order. In place if `shard` points at
  /// this rank's part of `full`.
  void all_gather(core::DType dtype, const void* shard, void* full, std::int64_t count) const;

  /// Sums over ranks. Shapes: full [size() * count] -> shard [count]. fp32.
  void reduce_scatter(const float* full, float* shard, std::int64_t count) const;

  void all_reduce(std::span<double> values, Reduce op) const;
  void all_reduce(std::span<float> values, Reduce op) const;
  void all_reduce(std::span<std::int64_t> values, Reduce op) const;
  std::int64_t all_reduce(std::int64_t value, Reduce op) const;
  double all_reduce(double value, Reduce op) const;

  /// Bytes of every rank, one entry per rank, on every rank.
  std::vector<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte> bytes) const;
  std::vector<std::string> all_gather_text(std::string_view text) const;

  /// Bytes of every rank, one entry per rank, on the root; nothing elsewhere.
  std::vector<std::vector<std::byte>> gather_bytes(std::span<const std::byte> bytes) const;
  std::vector<std::string> gather_text(std::string_view text) const;

  /// Hands `bytes` to the rank `distance` further on, in a ring; returns those of the rank that is
  /// as far behind. `distance` is the same on every rank and may be negative.
  std::vector<std::byte> shift(std::span<const std::byte> bytes, int distance) const;

  /// Sends `out` to rank `to` while `in` comes from rank `from`, in full; -1: to nobody, from
  /// nobody. Between these ranks alone, not collective: every `out` has its `in`. Returns the
  /// seconds after which `in` was there. To measure links with.
  double pass(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const;

  struct Delivery {
    int from = 0;
    std::vector<std::byte> bytes;
  };
  /// Hands `bytes` to the rank `to`, which each rank chooses; returns what others handed to this
  /// one, by rank.
  std::vector<Delivery> deliver(std::span<const std::byte> bytes, int to) const;

 private:
  friend class Environment;
  friend class MpiGroup;
  struct Handle;
  explicit Communicator(std::shared_ptr<const Handle> handle) : handle_(std::move(handle)) {}

  std::shared_ptr<Handle> duplicate(std::string name) const;
  /// broadcast as a part of a collective that is already recorded.
  void broadcast_inside(std::span<std::byte> bytes, int root) const;
  /// all_gather as a part of a collective that is already recorded.
  void all_gather_inside(core::DType dtype, const void* shard, void* full,
                         std::int64_t count) const;

  std::shared_ptr<const Handle> handle_;
};

}  // namespace finetune::comm
