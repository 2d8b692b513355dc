// SPDX-License-Identifier: Apache-2.0
#include "schedule/pass.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace finetune::schedule {
namespace {

class Writer {
 public:
  Writer(const Stages& stages, const Rules& rules)
      : stages_(stages),
        rules_(rules),
        num_holders_(static_cast<std::size_t>(stages.num_units()), 0),
        has_open_gradient_(num_holders_.size(), 0),
        is_first_(num_holders_.size(), 0),
        is_here_(num_holders_.size(), 0) {
    for (const int unit : first_units(stages, rules))
      is_first_[static_cast<std::size_t>(unit)] = 1;
  }

  std::vector<Event> forward_backward(Pass pass) {
    const int head = stages_.head();
    const int last_block = head - 1;
    hold(stages_.all_along());
    for (int stage = 0; stage < head; ++stage) {
      hold(stages_.units(stage));
      // Only the head comes between the last block's forward and its backward.
      if (stage == last_block && is_block(stage)) hold(stages_.units(stage));
      prefetch_after(stage);
      const bool is_kept = is_block(stage) && !is_recomputed(stage);
      add(is_kept ? Action::forward_kept : Action::forward, stage);
      if (is_offloaded(stage)) offload(stage);
      let_go(stages_.units(stage));
    }
    hold(stages_.units(head));
    open_gradients(head);
    drop_what_left();
    // The last block is here.
    for (int ahead = 2; ahead <= rules_.prefetch_depth; ++ahead)
      prefetch(head - ahead);
    add(Action::loss, head);
    reduce_completed(head, pass);
    let_go(stages_.units(head));
    for (int stage = last_block; is_block(stage); --stage) {
      if (stage - stages_.embedding() <= std::max(1, rules_.prefetch_depth)) next_ = pass;
      hold(stages_.units(stage));
      if (stage == last_block) let_go(stages_.units(stage));
      for (int ahead = 1; ahead <= rules_.prefetch_depth; ++ahead)
        prefetch(stage - ahead);
      open_gradients(stage);
      bring_back(stage);
      if (is_recomputed(stage)) add(Action::again, stage);
      add(Action::backward, stage);
      reduce_completed(stage, pass);
      let_go(stages_.units(stage));
      update_completed(stage + 1, pass);
    }
    // The embedding's gradient needs none of its weights; the next pass does.
    next_ = pass;
    for (const int unit : stages_.units(stages_.embedding()))
      if (is_for_next(unit) && num_holders(unit) == 0 && !stays(unit)) add(Action::gather, unit);
    open_gradients(stages_.embedding());
    add(Action::backward, stages_.embedding());
    reduce_completed(stages_.embedding(), pass);
    let_go(stages_.all_along());
    update_completed(stages_.embedding() + 1, pass);
    update_completed(stages_.embedding(), pass);
    for (const int unit : std::exchange(held_too_long_, {}))
      update(unit);
    return std::move(events_);
  }

  std::vector<Event> forward() {
    hold(stages_.all_along());
    for (int stage = 0; stage < stages_.num_stages(); ++stage) {
      hold(stages_.units(stage));
      prefetch_after(stage);
      add(Action::forward, stage);
      let_go(stages_.units(stage));
    }
    let_go(stages_.all_along());
    return std::move(events_);
  }

  std::vector<Event> end() {
    add(Action::finish, 0);
    next_ = Pass::last;
    for (int unit = 0; unit < stages_.num_units(); ++unit)
      if (stays(unit) && !is_for_next(unit)) add(Action::release, unit);
    return std::move(events_);
  }

 private:
  bool is_block(int stage) const { return stage > stages_.embedding() && stage < stages_.head(); }
  bool is_recomputed(int stage) const {
    return rules_.blocks.is_recomputed(stage - stages_.embedding() - 1);
  }
  bool is_offloaded(int stage) const {
    return is_block(stage) && rules_.blocks.is_offloaded(stage - stages_.embedding() - 1,
                                                         stages_.head() - stages_.embedding() - 1);
  }
  bool stays(int unit) const { return rules_.keeps_gathered || stages_.unit(unit).stays_gathered; }
  int& num_holders(int unit) { return num_holders_[static_cast<std::size_t>(unit)]; }
  char& has_open_gradient(int unit) { return has_open_gradient_[static_cast<std::size_t>(unit)]; }

  void add(Action action, int index) { events_.push_back({action, index}); }

  void prefetch_after(int stage) {
    for (int ahead = 1; ahead <= rules_.prefetch_depth && stage + ahead <= stages_.head(); ++ahead)
      gather(stage + ahead);
  }

  /// For backward, which begins with blocks.
  void prefetch(int stage) {
    if (is_block(stage)) gather(stage);
  }

  void gather(int stage) {
    for (const int unit : stages_.units(stage)) {
      char& is_here = is_here_[static_cast<std::size_t>(unit)];
      if (is_here == 0) add(Action::gather, unit);
      is_here = 1;
    }
  }

  void hold(const std::vector<int>& units) {
    for (const int unit : units)
      if (num_holders(unit)++ == 0) {
        add(Action::open, unit);
        is_here_[static_cast<std::size_t>(unit)] = 1;
      }
  }

  void let_go(const std::vector<int>& units) {
    for (const int unit : units) {
      if (--num_holders(unit) > 0) continue;
      add(Action::close, unit);
      if (stays(unit) || is_for_next(unit)) continue;
      add(Action::release, unit);
      is_here_[static_cast<std::size_t>(unit)] = 0;
    }
  }

  /// Whether the pass that follows finds the unit as it is, and begins with it.
  bool is_for_next(int unit) const {
    return next_ && is_first_[static_cast<std::size_t>(unit)] != 0 &&
           (*next_ == Pass::more_follow || !stages_.unit(unit).is_trained);
  }

  void offload(int stage) {
    drop_what_left();
    add(Action::offload, stage);
    travelling_ = stage;
  }

  void drop_what_left() {
    if (travelling_ != nobody) add(Action::drop, std::exchange(travelling_, nobody));
  }

  /// What `stage` is about to read, unless that is on its way already, and the next.
  void bring_back(int stage) {
    if (travelling_ != nobody && travelling_ != stage) return;
    if (travelling_ == nobody && is_offloaded(stage)) add(Action::bring_back, stage);
    travelling_ = nobody;
    for (int next = stage - 1; is_block(next); --next) {
      if (!is_offloaded(next)) continue;
      travelling_ = next;
      return add(Action::bring_back, next);
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

  void update_completed(int stage, Pass pass) {
    if (!rules_.updates_in_backward || pass != Pass::last) return;
    for (const int unit : stages_.completed(stage)) {
      if (!stages_.unit(unit).is_trained) continue;
      if (num_holders(unit) > 0)
        held_too_long_.push_back(unit);
      else
        update(unit);
    }
  }

  void update(int unit) {
    // What was gathered would be out of date.
    if (stays(unit)) add(Action::release, unit);
    add(Action::update, unit);
    add(Action::publish, unit);
  }

  static constexpr int nobody = -1;

  const Stages& stages_;
  const Rules& rules_;
  int travelling_ = nobody;              ///< whose activations are between the memories
  std::vector<int> num_holders_;         ///< of units, by those who need them open
  std::vector<char> has_open_gradient_;  ///< of units
  std::vector<char> is_first_;           ///< likewise
  std::vector<char> is_here_;            ///< likewise: this pass has begun to gather it
  std::vector<int> held_too_long_;       ///< complete, but open until the pass ends
  std::optional<Pass> next_;             ///< once nothing of this pass needs them again
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
    case Action::offload:
      return "offload";
    case Action::drop:
      return "drop";
    case Action::bring_back:
      return "bring_back";
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

bool moves_activations(Action action) {
  using enum Action;
  return action == offload || action == drop || action == bring_back;
}

bool Blocks::is_offloaded(int i_block, int num_blocks) const {
  const int first = num_recomputed < num_blocks ? num_recomputed : 0;
  if (i_block < first) return false;
  // How many have gone before it grows by one at num_offloaded of the blocks, and at the first.
  const std::int64_t before = std::int64_t{i_block - first} * num_offloaded;
  return before % (num_blocks - first) < num_offloaded;
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

std::vector<int> first_units(const Stages& stages, const Rules& rules) {
  std::vector<int> first;
  if (!rules.overlaps()) return first;
  const auto add = [&](const std::vector<int>& units) {
    for (const int unit : units)
      if (std::ranges::find(first, unit) == first.end()) first.push_back(unit);
  };
  add(stages.all_along());
  add(stages.units(stages.embedding()));
  for (int stage = 1; stage <= rules.prefetch_depth && stage < stages.head(); ++stage)
    add(stages.units(stage));
  if (stages.head() == 1) add(stages.units(1));
  return first;
}

std::vector<Event> make_update(const std::vector<int>& trained_units, const Rules& rules,
                               const std::vector<int>& next) {
  std::vector<Event> events;
  const auto is_in = [](const std::vector<int>& units, int unit) {
    return std::ranges::find(units, unit) != units.end();
  };
  for (const int unit : next)
    if (!is_in(trained_units, unit)) events.push_back({Action::gather, unit});
  const auto fetch = [&](std::size_t i) {
    if (rules.offloads && i < trained_units.size())
      events.push_back({Action::fetch, trained_units[i]});
  };
  fetch(0);
  for (std::size_t i = 0; i < trained_units.size(); ++i) {
    fetch(i + 1);
    events.push_back({Action::update, trained_units[i]});
    events.push_back({Action::publish, trained_units[i]});
    if (is_in(next, trained_units[i])) events.push_back({Action::gather, trained_units[i]});
  }
  return events;
}

StepEvents make_step(const Stages& stages, const Rules& rules) {
  std::vector<int> trained;
  for (int unit = 0; unit < stages.num_units(); ++unit)
    if (stages.unit(unit).is_trained && !rules.updates_in_backward) trained.push_back(unit);
  return {make_pass(stages, rules, Pass::more_follow), make_pass(stages, rules, Pass::last),
          make_end(stages, rules), make_update(trained, rules, first_units(stages, rules))};
}

std::string to_string(const Event& event) {
  return fmt::format("{} {}", name_of(event.action), event.index);
}

}  // namespace finetune::schedule
