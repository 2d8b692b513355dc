// SPDX-License-Identifier: Apache-2.0
#include "plan/timeline.hpp"

#include <algorithm>
#include <deque>

namespace finetune::plan {
namespace {

class Clock {
 public:
  Clock(const ShardMap& shards, const Stages& stages, const StepTimes& times,
        const TimelineRules& rules)
      : shards_(shards),
        stages_(stages),
        times_(times),
        rules_(rules),
        gathers_(shards.num_shards() > 1),
        num_open_(shards.units().size(), 0),
        ready_s_(shards.units().size(), not_gathered) {}

  StepSeconds run(std::int64_t passes) {
    for (std::int64_t i = 0; i < passes; ++i)
      pass(i + 1 == passes);
    while (!on_their_way_.empty())
      arrive();
    wait_until(replicas_done_s_);
    return {now_s_, exposed_s_, busy_s_, sent_bytes_};
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
  bool is_trained(int unit) const { return times_.is_trained[static_cast<std::size_t>(unit)] != 0; }
  double& ready_s(int unit) { return ready_s_[static_cast<std::size_t>(unit)]; }
  int& num_open(int unit) { return num_open_[static_cast<std::size_t>(unit)]; }

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
    if (gathers_ && ready_s(unit) == not_gathered) ready_s(unit) = start(of(unit).gather);
  }
  void open(const std::vector<int>& units) {
    for (const int unit : units) {
      gather(unit);
      ++num_open(unit);
    }
  }
  void close(const std::vector<int>& units) {
    for (const int unit : units) {
      const bool stays =
          rules_.sharding == Sharding::shard_grad_op || shards_.unit(unit).stays_gathered;
      if (--num_open(unit) == 0 && !stays) ready_s(unit) = not_gathered;
    }
  }
  void prefetch(int stage) {
    if (!rules_.overlaps) return;
    for (const int unit : stages_.units(stage))
      gather(unit);
  }
  void compute(int stage, double seconds) {
    if (gathers_) {
      for (const int unit : stages_.units(stage))
        wait_until(ready_s(unit));
    }
    now_s_ += seconds;
  }

  void arrive() {
    const OnItsWay oldest = on_their_way_.front();
    on_their_way_.pop_front();
    wait_until(oldest.done_s);
    now_s_ += of(oldest.unit).add_s;
    if (oldest.is_last && of(oldest.unit).over_replicas.seconds > 0)
      replicas_done_s_ = start(of(oldest.unit).over_replicas);
  }
  void open_gradients(int stage) {
    for (const int unit : stages_.units(stage)) {
      if (!is_trained(unit)) continue;
      while (gathers_ && on_their_way_.size() >= 2)
        arrive();
    }
  }
  void reduce(int stage, bool is_last) {
    for (const int unit : stages_.completed(stage)) {
      if (!is_trained(unit)) continue;
      on_their_way_.push_back({unit, gathers_ ? start(of(unit).reduce) : now_s_, is_last});
      if (!gathers_ || !rules_.overlaps) arrive();
      if (!rules_.overlaps) wait_until(replicas_done_s_);
    }
  }

  void pass(bool is_last) {
    const int head = stages_.head();
    open(stages_.all_along());
    for (int stage = 0; stage < head; ++stage) {
      open(stages_.units(stage));
      if (stage > 0 && stage == head - 1) open(stages_.units(stage));
      prefetch(stage + 1);
      compute(stage, of_stage(stage).forward);
      close(stages_.units(stage));
    }
    open(stages_.units(head));
    open_gradients(head);
    compute(head, of_stage(head).forward + of_stage(head).backward);
    reduce(head, is_last);
    close(stages_.units(head));
    for (int stage = head - 1; stage > 0; --stage) {
      open(stages_.units(stage));
      if (stage == head - 1) close(stages_.units(stage));
      if (stage > 1) prefetch(stage - 1);
      open_gradients(stage);
      compute(stage, of_stage(stage).backward);
      reduce(stage, is_last);
      close(stages_.units(stage));
    }
    open_gradients(0);
    now_s_ += of_stage(0).backward;
    reduce(0, is_last);
    close(stages_.all_along());
  }

  const ShardMap& shards_;
  const Stages& stages_;
  const StepTimes& times_;
  const TimelineRules& rules_;
  bool gathers_;
  std::vector<int> num_open_;
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

StepSeconds play(const ShardMap& shards, const Stages& stages, const StepTimes& times,
                 const TimelineRules& rules) {
  constexpr std::int64_t played = 3;
  const auto run = [&](std::int64_t passes) {
    return Clock(shards, stages, times, rules).run(passes);
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
