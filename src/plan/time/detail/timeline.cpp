// SPDX-License-Identifier: Apache-2.0
#include "plan/time/detail/timeline.hpp"

#include <algorithm>
#include <deque>
#include <map>

namespace finetune::plan {
namespace {

class Clock {
 public:
  Clock(const ShardMap& shards, const schedule::Stages& stages, const PlannedTimes& times,
        const TimelineRules& rules)
      : stages_(stages),
        times_(times),
        overlaps_(rules.schedule.overlaps()),
        offloads_(rules.schedule.offloads),
        shards_(shards),
        alone_(rules.alone),
        has_links_to_copies_(rules.has_links_to_copies),
        ready_s_(shards.units().size(), not_gathered),
        copied_s_(times.stages.size(), 0) {}

  void run(const std::vector<schedule::Event>& events) {
    for (const schedule::Event& event : events)
      run(event);
  }
  /// What was published has to be there before it is computed with.
  void all_published() { optimize_until(host_link_s_); }
  StepSeconds seconds() const {
    return {now_s_, optimizer_s_, exposed_s_, busy_s_, sent_bytes_, held_up_s_, copying_s_};
  }

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
        wait_for_copy(index);
        return compute(index, of_stage(index).again, of_stage(index).again_waits);
      case loss:
        return compute(index, of_stage(index).forward + of_stage(index).backward,
                       of_stage(index).forward_waits + of_stage(index).backward_waits);
      case backward:
        wait_for_copy(index);
        return compute(index, of_stage(index).backward, of_stage(index).backward_waits);
      case finish:
        return all_arrive();
      case offload:
      case bring_back:
        return copy(index);
      case drop:
        return wait_for_copy(index);
      case fetch:
        arrived_s_[index] = carry(times_.updates[static_cast<std::size_t>(index)].fetch);
        return;
      case update:
        return this->update(index);
      case publish:
        if (offloads_)
          published_s_.push_back(carry(times_.updates[static_cast<std::size_t>(index)].publish));
        return;
      case close:
        return;
    }
  }

  /// When the link to the host has carried what begins now.
  double carry(double seconds) { return host_link_s_ = std::max(host_link_s_, now_s_) + seconds; }
  void optimize_until(double time_s) {
    if (time_s <= now_s_) return;
    optimizer_s_ += time_s - now_s_;
    now_s_ = time_s;
  }
  void update(int unit) {
    // In backward; afterwards all have arrived.
    while (
        std::ranges::any_of(on_their_way_, [&](const OnItsWay& way) { return way.unit == unit; }))
      arrive();
    wait_until(replicas_done_s_);
    if (const auto found = arrived_s_.find(unit); found != arrived_s_.end())
      optimize_until(found->second);
    for (; published_s_.size() >= schedule::units_on_their_way; published_s_.pop_front())
      optimize_until(published_s_.front());
    optimize_until(now_s_ + times_.updates[static_cast<std::size_t>(unit)].update);
  }

  /// When a collective that is started now is done.
  double start(const Transfer& transfer, double from_s = 0) {
    return start(transfer, link_s_, from_s);
  }
  double start(const Transfer& transfer, double& link_s, double from_s) {
    link_s = std::max({link_s, now_s_, from_s}) + transfer.seconds;
    now_s_ += transfer.processor_s;
    exposed_s_ += transfer.processor_s;
    busy_s_ += transfer.seconds;
    sent_bytes_ += transfer.sent_bytes;
    return link_s;
  }
  void wait_until(double time_s) {
    if (time_s <= now_s_) return;
    exposed_s_ += time_s - now_s_;
    now_s_ = time_s;
  }

  double& copied_s(int stage) { return copied_s_[static_cast<std::size_t>(stage)]; }
  void copy(int stage) {
    copied_s(stage) = carry(of_stage(stage).offload);
    copying_s_ += of_stage(stage).offload;
  }
  void wait_for_copy(int stage) {
    const double waits_s = copied_s(stage) - now_s_;
    if (waits_s <= 0) return;
    held_up_s_ += waits_s;
    now_s_ += waits_s;
  }

  void gather(int unit) {
    if (!gathers(unit) || ready_s(unit) != not_gathered) return;
    // Weights may still be on their way from the host.
    ready_s(unit) = start(of(unit).gather, published_s_.empty() ? 0 : published_s_.back());
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
      replicas_done_s_ =
          start(of(oldest.unit).over_replicas, has_links_to_copies_ ? to_copies_s_ : link_s_, 0);
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
  bool offloads_;
  const ShardMap& shards_;
  Alone alone_;
  bool has_links_to_copies_;
  std::vector<double> ready_s_;
  std::vector<double> copied_s_;  ///< of stages, when their last copy is done
  std::deque<OnItsWay> on_their_way_;
  double now_s_ = 0;
  double link_s_ = 0;       ///< links are busy until then
  double to_copies_s_ = 0;  ///< and those to copies of the model, if they are others
  double busy_s_ = 0;
  double sent_bytes_ = 0;
  double exposed_s_ = 0;
  double replicas_done_s_ = 0;
  std::map<int, double> arrived_s_;  ///< gradients, in the host's memory
  std::deque<double> published_s_;   ///< weights, on the device
  double host_link_s_ = 0;           ///< busy until then
  double optimizer_s_ = 0;
  double held_up_s_ = 0;
  double copying_s_ = 0;
};

StepSeconds operator*(double factor, const StepSeconds& a) {
  return {factor * a.total,      factor * a.optimizer, factor * a.exposed, factor * a.communication,
          factor * a.sent_bytes, factor * a.held_up,   factor * a.copying};
}
StepSeconds operator+(const StepSeconds& a, const StepSeconds& b) {
  return {a.total + b.total,           a.optimizer + b.optimizer,
          a.exposed + b.exposed,       a.communication + b.communication,
          a.sent_bytes + b.sent_bytes, a.held_up + b.held_up,
          a.copying + b.copying};
}
StepSeconds operator-(const StepSeconds& a, const StepSeconds& b) {
  return a + -1 * b;
}

}  // namespace

StepSeconds play(const ShardMap& shards, const schedule::Stages& stages, const PlannedTimes& times,
                 const TimelineRules& rules) {
  constexpr std::int64_t played = 3;
  schedule::StepEvents events = make_step(stages, rules.schedule);
  if (!rules.gathers_ahead)
    std::erase_if(events.update,
                  [](const auto& event) { return event.action == schedule::Action::gather; });
  // The second step finds what the first one left.
  const auto run = [&](std::int64_t passes) {
    Clock clock(shards, stages, times, rules);
    StepSeconds first;
    for (int step = 0; step < 2; ++step) {
      first = clock.seconds();
      for (std::int64_t i = 1; i < passes; ++i)
        clock.run(events.pass);
      clock.run(events.last);
      clock.run(events.end);
      clock.run(events.update);
      clock.all_published();
    }
    return clock.seconds() - first;
  };
  if (rules.accumulation <= played) return run(rules.accumulation);
  const StepSeconds three = run(played);
  return three + static_cast<double>(rules.accumulation - played) * (three - run(played - 1));
}

}  // namespace finetune::plan
