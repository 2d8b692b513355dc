// SPDX-License-Identifier: Apache-2.0
#include "schedule/pass.hpp"

#include <fmt/format.h>

#include <utility>

namespace finetune::schedule {
namespace {

class Writer {
 public:
  Writer(const Stages& stages, const Rules& rules)
      : stages_(stages),
        rules_(rules),
        num_holders_(static_cast<std::size_t>(stages.num_units()), 0),
        has_open_gradient_(num_holders_.size(), 0) {}

  std::vector<Event> forward_backward(Pass pass) {
    const int head = stages_.head();
    const int last_block = head - 1;
    hold(stages_.all_along());
    for (int stage = 0; stage < head; ++stage) {
      hold(stages_.units(stage));
      // Only the head comes between the last block's forward and its backward.
      if (stage == last_block && is_block(stage)) hold(stages_.units(stage));
      prefetch(stage + 1);
      const bool is_kept = is_block(stage) && !is_recomputed(stage);
      add(is_kept ? Action::forward_kept : Action::forward, stage);
      let_go(stages_.units(stage));
    }
    hold(stages_.units(head));
    open_gradients(head);
    add(Action::loss, head);
    reduce_completed(head, pass);
    let_go(stages_.units(head));
    for (int stage = last_block; is_block(stage); --stage) {
      hold(stages_.units(stage));
      if (stage == last_block) let_go(stages_.units(stage));
      if (is_block(stage - 1)) prefetch(stage - 1);
      open_gradients(stage);
      if (is_recomputed(stage)) add(Action::again, stage);
      add(Action::backward, stage);
      reduce_completed(stage, pass);
      let_go(stages_.units(stage));
    }
    // The embedding's gradient needs none of its weights.
    open_gradients(stages_.embedding());
    add(Action::backward, stages_.embedding());
    reduce_completed(stages_.embedding(), pass);
    let_go(stages_.all_along());
    return std::move(events_);
  }

  std::vector<Event> forward() {
    hold(stages_.all_along());
    for (int stage = 0; stage < stages_.num_stages(); ++stage) {
      hold(stages_.units(stage));
      if (stage != stages_.head()) prefetch(stage + 1);
      add(Action::forward, stage);
      let_go(stages_.units(stage));
    }
    let_go(stages_.all_along());
    return std::move(events_);
  }

  std::vector<Event> end() {
    add(Action::finish, 0);
    for (int unit = 0; unit < stages_.num_units(); ++unit)
      if (stays(unit)) add(Action::release, unit);
    return std::move(events_);
  }

 private:
  bool is_block(int stage) const { return stage > stages_.embedding() && stage < stages_.head(); }
  bool is_recomputed(int stage) const {
    return rules_.blocks.is_recomputed(stage - stages_.embedding() - 1);
  }
  bool stays(int unit) const { return rules_.keeps_gathered || stages_.unit(unit).stays_gathered; }
  int& num_holders(int unit) { return num_holders_[static_cast<std::size_t>(unit)]; }
  char& has_open_gradient(int unit) { return has_open_gradient_[static_cast<std::size_t>(unit)]; }

  void add(Action action, int index) { events_.push_back({action, index}); }

  void prefetch(int stage) {
    if (!rules_.prefetches) return;
    for (const int unit : stages_.units(stage))
      if (num_holders(unit) == 0) add(Action::gather, unit);
  }

  void hold(const std::vector<int>& units) {
    for (const int unit : units)
      if (num_holders(unit)++ == 0) add(Action::open, unit);
  }

  void let_go(const std::vector<int>& units) {
    for (const int unit : units) {
      if (--num_holders(unit) > 0) continue;
      add(Action::close, unit);
      if (!stays(unit)) add(Action::release, unit);
    }
  }

  void open_gradients(int stage) {
    for (const int unit : stages_.units(stage)) {
      if (!stages_.unit(unit).is_trained || has_open_gradient(unit)) continue;
      has_open_gradient(unit) = 1;
      add(Action::open_gradient, unit);
    }
  }

  void reduce_completed(int stage, Pass pass) {
    for (const int unit : stages_.completed(stage)) {
      if (!stages_.unit(unit).is_trained) continue;
      has_open_gradient(unit) = 0;
      add(pass == Pass::last ? Action::reduce_last : Action::reduce, unit);
    }
  }

  const Stages& stages_;
  const Rules& rules_;
  std::vector<int> num_holders_;         ///< of units, by those who need them open
  std::vector<char> has_open_gradient_;  ///< of units
  std::vector<Event> events_;
};

const char* name_of(Action action) {
  switch (action) {
    case Action::gather:
      return "gather";
    case Action::open:
      return "open";
    case Action::close:
      return "close";
    case Action::release:
      return "release";
    case Action::open_gradient:
      return "open_gradient";
    case Action::reduce:
      return "reduce";
    case Action::reduce_last:
      return "reduce_last";
    case Action::forward:
      return "forward";
    case Action::forward_kept:
      return "forward_kept";
    case Action::again:
      return "again";
    case Action::loss:
      return "loss";
    case Action::backward:
      return "backward";
    case Action::finish:
      return "finish";
    case Action::fetch:
      return "fetch";
    case Action::update:
      return "update";
    case Action::publish:
      return "publish";
  }
  return "";
}

}  // namespace

bool is_of_stage(Action action) {
  using enum Action;
  return action == forward || action == forward_kept || action == again || action == loss ||
         action == backward;
}

std::vector<Event> make_pass(const Stages& stages, const Rules& rules, Pass pass) {
  return Writer(stages, rules).forward_backward(pass);
}

std::vector<Event> make_forward(const Stages& stages, const Rules& rules) {
  return Writer(stages, rules).forward();
}

std::vector<Event> make_end(const Stages& stages, const Rules& rules) {
  return Writer(stages, rules).end();
}

std::vector<Event> make_update(const std::vector<int>& trained_units, const Rules& rules) {
  std::vector<Event> events;
  const auto fetch = [&](std::size_t i) {
    if (rules.offloads && i < trained_units.size())
      events.push_back({Action::fetch, trained_units[i]});
  };
  fetch(0);
  for (std::size_t i = 0; i < trained_units.size(); ++i) {
    fetch(i + 1);
    events.push_back({Action::update, trained_units[i]});
    events.push_back({Action::publish, trained_units[i]});
  }
  return events;
}

std::string to_string(const Event& event) {
  return fmt::format("{} {}", name_of(event.action), event.index);
}

}  // namespace finetune::schedule
