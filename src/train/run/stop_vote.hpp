#pragma once
// SPDX-License-Identifier: Apache-2.0
// Whether the ranks leave a step between two of its passes, because some rank is to stop.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "comm/communicator.hpp"
#include "comm/group.hpp"
#include "comm/interrupted.hpp"

namespace finetune::train {

/// What one rank knows, all have to know at the same pass, or the others would wait in the next
/// one. So they vote between passes, about once a second: a step that is over sooner is not left.
/// Ranks whose passes go in step anyway, because they gather their weights from each other, vote
/// and continue with the result. Others would wait for the slowest rank at every vote; theirs
/// travels behind the computation and counts at the next one. Only before the last pass of a step
/// of long passes they wait: what is cast there, nobody would read.
class StopVote {
 public:
  /// Whether ranks go through their passes in step.
  enum class Passes { in_step, apart };
  /// Sharded over all ranks, each pass gathers weights from all of them.
  static Passes passes_of(const comm::Communicator& world, const comm::Communicator& fsdp) {
    return fsdp.size() == world.size() ? Passes::in_step : Passes::apart;
  }
  using Asked = std::function<bool()>;
  using Clock = std::function<double()>;  ///< seconds

  /// `asked`: whether this rank is to stop. Collective on `world`.
  StopVote(const comm::Communicator& world, Passes passes, Asked asked, Clock clock);

  /// A step of `num_passes` begins, as many on every rank.
  void begin_step(std::int64_t num_passes);

  /// A pass is done that is not the step's last. True, on every rank, if the step is to be left
  /// here. Collective on the world.
  bool after_pass();

 private:
  static constexpr double look_s = 1;
  /// Steps without a vote after which passes are timed again: they may have become slow.
  static constexpr int most_silent_steps = 16;

  void fill_in();
  /// All ranks wait for each other's votes.
  bool vote_now();
  /// The votes that were cast before.
  bool read();
  /// Whether any rank is to stop; the interval of the votes that follow.
  bool count();

  comm::Communicator world_;
  Passes how_;
  Asked asked_;
  Clock clock_;
  std::unique_ptr<comm::Group> behind_;     ///< of Passes::apart
  std::array<std::int64_t, 2> votes_ = {};  ///< ranks that are to stop, microseconds of all passes
  comm::Ticket on_its_way_ = comm::nothing_started;
  std::int64_t interval_ = 1;  ///< passes from one vote to the next
  std::int64_t num_passes_ = 0;
  std::int64_t done_ = 0;  ///< passes of this step
  std::int64_t done_at_cast_ = 0;
  std::int64_t due_ = 0;  ///< the next vote is after so many passes
  double began_ = 0;
  int silent_steps_ = 0;
};

/// For long work before the first step: the ranks leave it once `asked` is true on any of them.
/// Collective where the returned functions are.
comm::Leave leave_when(const comm::Communicator& world, StopVote::Asked asked,
                       StopVote::Clock clock);

}  // namespace finetune::train
