// SPDX-License-Identifier: Apache-2.0
#include "plan/time/detail/timeline.hpp"

#include <algorithm>
#include <deque>
#include <numeric>

namespace finetune::plan {
namespace {

class Clock {
 public:
  Clock(const ShardMap& shards, const schedule::Stages& stages, const PlannedTimes& times,
        const TimelineRules& rules)
      : stages_(stages),
        times_(times),
        overlaps_(rules.schedule.prefetches),
        shards_(shards),
        alone_(rules.alone),
        ready_s_(shards.units().size(), not_gathered) {}

  void run(const std::vector<schedule::Event>& events) {
    for (const schedule::Event& event : events)
      run(event);
  }
  StepSeconds seconds() const { return {now_s_, exposed_s_, busy_s_, sent_bytes_}; }

 private:
  static constexpr double not_gathered = -1;

  struct OnItsWay {
    int unit = 0;
    double done_s = 0;
    bool is_last = false;
  };

  const UnitTimes& of(int unit) const { return times_.units[static_cast<std::size_t>(unit)]; }
  const StageSeconds& of_stage(int stage) const {
    return times_.stages[static_cast<std::size_t>(stage)];
  }
  double& ready_s(int unit) { return ready_s_[static_cast<std::size_t>(unit)]; }

  bool gathers(int unit) const {
    return shards_.unit(unit).num_shards > 1 || alone_ == Alone::communicates;
  }

  void run(const schedule::Event& event) {
    using enum schedule::Action;
    const int index = event.index;
    switch (event.action) {
      case gather:
      case open:
        return this->gather(index);
      case release:
        ready_s(index) = not_gathered;
        return;
      case open_gradient:
        return make_room();
      case reduce:
      case reduce_last:
        return leave(index, event.action == reduce_last);
      case forward:
      case forward_kept:
        return compute(index, of_stage(index).forward, of_stage(index).forward_waits);
      case again:
        return compute(index, of_stage(index).again, of_stage(index).again_waits);
      case loss:
        return compute(index, of_stage(index).forward + of_stage(index).backward,
                       of_stage(index).forward_waits + of_stage(index).backward_waits);
      case backward:
        return compute(index, of_stage(index).backward, of_stage(index).backward_waits);
      case finish:
        return all_arrive();
      case close:
      case fetch:
      case update:
      case publish:
        return;
    }
  }

  /// When a collective that is started now is done.
  double start(const Transfer& transfer) {
    link_s_ = std::max(link_s_, now_s_) + transfer.seconds;
    now_s_ += transfer.processor_s;
    exposed_s_ += transfer.processor_s;
    busy_s_ += transfer.seconds;
    sent_bytes_ += transfer.sent_bytes;
    return link_s_;
  }
  void wait_until(double time_s) {
    if (time_s <= now_s_) return;
    exposed_s_ += time_s - now_s_;
    now_s_ = time_s;
  }

  void gather(int unit) {
    if (gathers(unit) && ready_s(unit) == not_gathered) ready_s(unit) = start(of(unit).gather);
  }
  void compute(int stage, double seconds, double waits_s) {
    for (const int unit : stages_.units(stage))
      wait_until(ready_s(unit));
    now_s_ += seconds + waits_s;
    exposed_s_ += waits_s;
  }

  void arrive() {
    const OnItsWay oldest = on_their_way_.front();
    on_their_way_.pop_front();
    arrive(oldest);
  }
  void arrive(const OnItsWay& oldest) {
    wait_until(oldest.done_s);
    now_s_ += of(oldest.unit).add_s;
    if (oldest.is_last && of(oldest.unit).over_replicas.seconds > 0)
      replicas_done_s_ = start(of(oldest.unit).over_replicas);
  }
  void all_arrive() {
    while (!on_their_way_.empty())
      arrive();
    wait_until(replicas_done_s_);
  }
  /// Two gradients at most are on their way while the next is computed.
  void make_room() {
    while (on_their_way_.size() >= 2)
      arrive();
  }
  void leave(int unit, bool is_last) {
    now_s_ += of(unit).in_common_s;
    exposed_s_ += of(unit).in_common_s;
    if (gathers(unit)) {
      on_their_way_.push_back({unit, start(of(unit).reduce), is_last});
      if (!overlaps_) arrive();
    } else {
      arrive({unit, now_s_, is_last});
    }
    if (!overlaps_) wait_until(replicas_done_s_);
  }

  const schedule::Stages& stages_;
  const PlannedTimes& times_;
  bool overlaps_;
  const ShardMap& shards_;
  Alone alone_;
  std::vector<double> ready_s_;
  std::deque<OnItsWay> on_their_way_;
  double now_s_ = 0;
  double link_s_ = 0;  ///< links are busy until then
  double busy_s_ = 0;
  double sent_bytes_ = 0;
  double exposed_s_ = 0;
  double replicas_done_s_ = 0;
};

}  // namespace

double play_update(const std::vector<UpdateSeconds>& times, const schedule::Rules& rules) {
  std::vector<int> units(times.size());
  std::iota(units.begin(), units.end(), 0);
  std::vector<double> arrived_s(times.size(), 0);
  std::deque<double> published_s;
  double now_s = 0, link_s = 0;
  const auto carry = [&](double seconds) { return link_s = std::max(link_s, now_s) + seconds; };
  for (const schedule::Event& event : make_update(units, rules)) {
    const auto unit = static_cast<std::size_t>(event.index);
    if (event.action == schedule::Action::fetch) {
      arrived_s[unit] = carry(times[unit].fetch);
    } else if (event.action == schedule::Action::update) {
      now_s = std::max(now_s, arrived_s[unit]);
      for (; published_s.size() >= schedule::units_on_their_way; published_s.pop_front())
        now_s = std::max(now_s, published_s.front());
      now_s += times[unit].update;
    } else if (rules.offloads) {
      published_s.push_back(carry(times[unit].publish));
    }
  }
  return std::max(now_s, link_s);
}

StepSeconds play(const ShardMap& shards, const schedule::Stages& stages, const PlannedTimes& times,
                 const TimelineRules& rules) {
  using schedule::Pass;
  constexpr std::int64_t played = 3;
  const auto pass = make_pass(stages, rules.schedule, Pass::more_follow);
  const auto last = make_pass(stages, rules.schedule, Pass::last);
  const auto end = make_end(stages, rules.schedule);
  const auto run = [&](std::int64_t passes) {
    Clock clock(shards, stages, times, rules);
    for (std::int64_t i = 1; i < passes; ++i)
      clock.run(pass);
    clock.run(last);
    clock.run(end);
    return clock.seconds();
  };
  if (rules.accumulation <= played) return run(rules.accumulation);
  const StepSeconds three = run(played), two = run(played - 1);
  const auto more = static_cast<double>(rules.accumulation - played);
  return {three.total + more * (three.total - two.total),
          three.exposed + more * (three.exposed - two.exposed),
          three.communication + more * (three.communication - two.communication),
          three.sent_bytes + more * (three.sent_bytes - two.sent_bytes)};
}

}  // namespace finetune::plan
