#pragma once
// SPDX-License-Identifier: Apache-2.0
// The way of gradients from a unit's buffer into the sums of the ranks that keep its shards.

#include <ATen/ATen.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "plan/layout/shard_map.hpp"
#include "schedule/pass.hpp"
#include "shard/detail/buffer_pool.hpp"
#include "shard/host_copy.hpp"
#include "shard/options.hpp"
#include "shard/wire.hpp"

namespace finetune::shard {

/// A gradient that fixed point cannot hold.
struct OutOfRange {
  int unit = 0;
  std::int64_t element = 0;  ///< of the unit's flat buffer
  float value = 0;
};

/// Adds micro-batches' gradients of all ranks to sums by unit, behind the computation.
class Gradients {
 public:
  /// `map` outlives this.
  Gradients(const plan::ShardMap& map, const Groups& groups, const Options& options);

  /// The sum has the buffer's place: one rank, fp32.
  bool sums_in_place() const { return sums_in_place_; }

  /// A buffer [shard_size * ranks] of the computation's dtype for a micro-batch's gradient of
  /// `unit`; undefined contents, except where it is the sum itself.
  at::Tensor take_buffer(int unit);

  /// The sum of the step so far has something: `take_buffer`'s must be added to, not overwritten.
  bool has_sum(int unit) const { return has_sum_[static_cast<std::size_t>(unit)] != 0; }

  /// Starts to add `buffer` to the sums; in the step's last micro-batch also over the replicas.
  /// Collective on the ranks that share the unit, and on dp_replicate.
  using Pass = schedule::Pass;
  void reduce(int unit, at::Tensor buffer, Pass pass);

  /// Returns when all sums are complete. Throws: ErrorKind::environment.
  void finish();

  /// The same of one unit. Every rank asks for the same ones in the same order.
  void finish(int unit);

  /// Gives back the memory of a unit's sum, which is complete: it is made again when needed.
  void release(int unit);

  /// Forgets the sums of the last step, complete or not. `num_terms`: micro-batches of the next one
  /// over all ranks.
  void reset(std::int64_t num_terms);

  /// This rank's part of the gradient, fp32 [shard_size] on the computation's device. Valid until
  /// the next call.
  at::Tensor gradient(int unit);

  /// What this rank found since `reset`; after `finish`. Waits for a device that is not done yet.
  std::optional<OutOfRange> out_of_range();

 private:
  struct OnItsWay {
    int unit = 0;
    comm::Ticket ticket = comm::nothing_started;
    at::Tensor buffer = {};  ///< given back when it has left
    at::Tensor wire = {};    ///< device: the buffer as it travels
    at::Tensor terms =
        {};  ///< device: added to the sum on arrival; over replicas: the sum, narrowed
    bool is_last = false;
  };

  /// On their way to the host, of compositions.
  struct StartedChecks {
    std::vector<int> units;
    HostCopy is_good, element, value;
  };

  at::Tensor& sum(int unit) { return sums_[static_cast<std::size_t>(unit)]; }
  std::int64_t shard_size(int unit) const { return map_.unit(unit).shard_size; }
  comm::Group& group_of(int unit) const { return groups_.of(map_.unit(unit)); }
  void make_sum(int unit);
  void add_alone(int unit, const at::Tensor& buffer, bool is_first);
  void add_alone_on_device(int unit, const at::Tensor& buffer);
  at::Tensor to_wire_on_device(int unit, const at::Tensor& gradient);
  void start_on_host(int unit, at::Tensor buffer);
  void start_on_device(int unit, at::Tensor buffer);
  void start_over_replicas(int unit);
  void arrive();
  at::Tensor found(int unit);
  void start_checks();
  void look_at_checks();
  void note(int unit, std::int64_t element, float value);

  const plan::ShardMap& map_;
  Groups groups_;
  Options options_;
  bool sums_in_place_;
  double limit_ = 0;
  std::vector<at::Tensor> sums_;
  std::vector<char> has_sum_;
  at::Tensor scratch_;
  BufferPool pool_;
  std::deque<OnItsWay> on_their_way_;
  std::vector<OnItsWay> over_replicas_;
  std::vector<std::pair<int, FirstBad>> checks_;  ///< device: of units that were sent
  std::vector<StartedChecks> started_checks_;
  bool packs_by_kernels_;          ///< fixed point on a device
  at::Tensor found_;               ///< int64 [units], of kernels: what of them is out of range
  std::vector<int> packed_units_;  ///< of found_, in the order of their passes
  std::optional<HostCopy> found_copy_;
  std::mutex mutex_;  ///< of out_of_range_, which the stream's thread writes
  std::optional<OutOfRange> out_of_range_;
};

}  // namespace finetune::shard
