// SPDX-License-Identifier: Apache-2.0
#include "comm/activity.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "trace/recorder.hpp"

namespace finetune::comm {
namespace {

bool is_same_group(const Collective& a, const Collective& b) {
  return a.track == b.track && a.details.first_rank == b.details.first_rank &&
         a.details.num_ranks == b.details.num_ranks && a.axis.view() == b.axis.view();
}

/// "backward of layers.12".
std::string text_of(const char* kind, const Label& subject) {
  std::string text = kind;
  if (!subject.is_empty()) text.append(" of ").append(subject.view());
  return text;
}

/// Collectives of a stream have a row for each axis, as there may be a thread for each.
void trace_it(const Collective& collective) noexcept try {
  const Details& details = collective.details;
  const std::string axis(collective.axis.view());
  core::Json args = {
      {"collective", collective.name},
      {"axis", axis},
      {"bytes", details.bytes},
      {"subject", details.subject.view()},
      {"step", collective.step},
      {"number", collective.number},
      {"first_rank", details.first_rank},
      {"num_ranks", details.num_ranks},
      {"queued_us", static_cast<double>(collective.begin_ns - details.posted_ns) * 1e-3}};
  if (core::Json stack = trace::stack(); !stack.is_null()) args["stack"] = std::move(stack);
  trace::record(
      {.row = collective.track == Track::main ? std::string(trace::main_row) : "stream of " + axis,
       .name = collective.name + (" " + axis),
       .begin_ns = collective.begin_ns,
       .end_ns = collective.end_ns,
       .args = std::move(args)});
} catch (...) {
  // Without memory for a span there is one less.
}

}  // namespace

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Activity::Activity() : ring_(num_remembered) {
  constexpr std::size_t usual_threads = 8;
  for (State& state : states_)
    state.open.reserve(usual_threads);
}

void Activity::set_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

Activity::Entry Activity::enter(Track track, const char* collective, const std::string& axis,
                                const Details& details) {
  const std::lock_guard lock(mutex_);
  State& state = this->state(track);
  Open& open = state.open.emplace_back();
  open.number = ++state.sequence;
  open.collective = {.track = track,
                     .step = step_,
                     .name = collective,
                     .axis = axis,
                     .details = details,
                     .begin_ns = now_ns()};
  if (details.posted_ns == 0) open.collective.details.posted_ns = open.collective.begin_ns;
  open.collective.number = next_number(open.collective);
  open.slot = num_recorded_++ % ring_.size();
  ring_[open.slot] = open.collective;
  return {track, open.number};
}

std::int64_t Activity::next_number(const Collective& collective) {
  const auto found = std::find_if(newest_.begin(), newest_.end(), [&](const Collective& each) {
    return is_same_group(each, collective);
  });
  const std::int64_t number = found == newest_.end() ? 1 : found->number + 1;
  Collective& newest = found == newest_.end() ? newest_.emplace_back() : *found;
  newest = collective;
  newest.number = number;
  return number;
}

void Activity::leave(const Entry& entry) noexcept {
  Collective collective;
  {
    const std::lock_guard lock(mutex_);
    State& state = this->state(entry.track);
    const auto open = std::find_if(state.open.begin(), state.open.end(),
                                   [&](const Open& each) { return each.number == entry.number; });
    if (open == state.open.end()) return;
    collective = open->collective;
    collective.end_ns = now_ns();
    // Others may have gone once round meanwhile.
    Collective& slot = ring_[open->slot];
    if (is_same_group(slot, collective) && slot.number == collective.number) slot = collective;
    for (Collective& each : newest_)
      if (is_same_group(each, collective) && each.number == collective.number)
        each.end_ns = collective.end_ns;
    state.open.erase(open);
    state.last_left = collective;
    state.since_last = core::Stopwatch();
  }
  // Behind the lock, which the watchdog waits for.
  if (trace::is_on()) trace_it(collective);
}

Doing Activity::look(Track track) const {
  const std::lock_guard lock(mutex_);
  const State& state = states_[static_cast<std::size_t>(track)];
  const bool is_inside = !state.open.empty();
  // Of several the oldest: it is the one that may hang.
  const Collective& collective = is_inside ? state.open.front().collective : state.last_left;
  return {.step = step_,
          .sequence = state.sequence,
          .is_inside = is_inside,
          .collective = collective.name,
          .axis = std::string(collective.axis.view()),
          .seconds = is_inside ? state.open.front().since.seconds() : state.since_last.seconds(),
          .work = track == Track::main ? text_of(work_.kind, work_.subject) : std::string()};
}

void Activity::set_subject(std::string_view subject) {
  const std::lock_guard lock(mutex_);
  subject_ = subject;
}

Label Activity::subject() const {
  const std::lock_guard lock(mutex_);
  return subject_;
}

std::vector<Collective> Activity::last() const {
  const std::lock_guard lock(mutex_);
  std::vector<Collective> last;
  last.reserve(ring_.size());
  for (const State& state : states_)
    for (const Open& open : state.open)
      last.push_back(open.collective);
  const std::size_t num = std::min(num_recorded_, ring_.size());
  for (std::size_t i = 1; i <= num; ++i) {
    const Collective& each = ring_[(num_recorded_ - i) % ring_.size()];
    if (each.end_ns != 0) last.push_back(each);
  }
  return last;
}

std::vector<Collective> Activity::counts() const {
  const std::lock_guard lock(mutex_);
  return newest_;
}

Activity::Work::Work(Activity* activity, const char* kind, std::string_view subject)
    : activity_(activity), num_exceptions_(std::uncaught_exceptions()) {
  if (activity_ == nullptr) return;
  const std::lock_guard lock(activity_->mutex_);
  before_ = std::exchange(activity_->work_, {kind, subject});
}

Activity::Work::~Work() {
  if (activity_ == nullptr || std::uncaught_exceptions() > num_exceptions_) return;
  const std::lock_guard lock(activity_->mutex_);
  activity_->work_ = before_;
}

}  // namespace finetune::comm
