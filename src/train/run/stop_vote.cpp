// SPDX-License-Identifier: Apache-2.0
#include "train/run/stop_vote.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "comm/activity.hpp"
#include "comm/mpi/mpi_group.hpp"
#include "core/fault.hpp"

namespace finetune::train {

StopVote::StopVote(const comm::Communicator& world, Passes passes, Asked asked, Clock clock)
    : world_(world),
      how_(world.size() == 1 ? Passes::in_step : passes),
      asked_(std::move(asked)),
      clock_(std::move(clock)) {
  if (how_ == Passes::in_step) return;
  // With a thread of its own: behind the gradients' messages it would hold them up. Who waits for
  // it tells the watchdog.
  // Two numbers need no memory that ranks share.
  behind_ = std::make_unique<comm::MpiGroup>(
      world_.split(0, world_.rank(), "stop", comm::Communicator::Watched::no),
      std::make_shared<comm::Worker>(comm::Worker::Where::behind),
      comm::MpiGroup::Options{.levels = comm::MpiGroup::Options::Levels::one});
}

void StopVote::begin_step(std::int64_t num_passes) {
  num_passes_ = num_passes;
  done_ = 0;
  if (++silent_steps_ > most_silent_steps) interval_ = 1;
  due_ = interval_;
  began_ = clock_();
}

bool StopVote::after_pass() {
  ++done_;
  if (done_ < due_) return false;
  const bool is_asked = how_ == Passes::in_step || on_its_way_ != comm::nothing_started;
  const bool is_left = is_asked && (how_ == Passes::in_step ? vote_now() : read());
  due_ = done_ + interval_;
  if (how_ == Passes::in_step || is_left) return is_left;
  if (due_ >= num_passes_) return interval_ == 1 && vote_now();
  fill_in();
  on_its_way_ = behind_->all_reduce(core::DType::i64, votes_.data(), std::ssize(votes_));
  return false;
}

void StopVote::fill_in() {
  silent_steps_ = 0;
  votes_ = {asked_() ? 1 : 0, static_cast<std::int64_t>(1e6 * (clock_() - began_))};
  done_at_cast_ = done_;
}

bool StopVote::vote_now() {
  fill_in();
  world_.all_reduce(std::span<std::int64_t>(votes_), comm::Reduce::sum);
  return count();
}

bool StopVote::read() {
  const comm::Activity::Scope scope(world_.activity(), comm::Track::main, "all_reduce", "stop");
  behind_->wait(on_its_way_);
  on_its_way_ = comm::nothing_started;
  return count();
}

bool StopVote::count() {
  const double pass_us =
      static_cast<double>(votes_[1]) /
      static_cast<double>(world_.size() * std::max<std::int64_t>(1, done_at_cast_));
  // All ranks have read the same numbers, and so vote after the same passes.
  constexpr double most_passes = 1 << 30;
  interval_ = static_cast<std::int64_t>(
      std::clamp(std::ceil(1e6 * look_s / std::max(pass_us, 1e-3)), 1.0, most_passes));
  if (core::fault::hit("stop.vote") == core::fault::FaultAction::flip) interval_ = 1;
  return votes_[0] != 0;
}

comm::Leave leave_when(const comm::Communicator& world, StopVote::Asked asked,
                       StopVote::Clock clock) {
  struct Work {
    bool cannot_go_on = false;
    std::optional<StopVote> vote = {};
  };
  const auto work = std::make_shared<Work>();
  const auto wants_to = [work = work.get(), asked = std::move(asked)] {
    return work->cannot_go_on || asked();
  };
  return {.begin =
              [=](std::int64_t num_units) {
                work->cannot_go_on = false;
                work->vote.emplace(world, StopVote::Passes::apart, wants_to, clock);
                work->vote->begin_step(num_units);
              },
          .after_unit =
              [=](bool cannot_go_on) {
                work->cannot_go_on = work->cannot_go_on || cannot_go_on;
                return work->vote->after_pass();
              }};
}

}  // namespace finetune::train
