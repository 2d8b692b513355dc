// SPDX-License-Identifier: Apache-2.0
#include "train/step/detail/events.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "comm/activity.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "trace/recorder.hpp"

namespace finetune::train {
namespace {

using schedule::Action;
using schedule::Event;
using schedule::Stages;

comm::Activity* activity_of(const Engine& engine) {
  return engine.shards.groups().fsdp->communicator().activity();
}

std::string name_of(const Stages& stages, int stage) {
  if (stage == stages.embedding()) return "embedding";
  if (stage == stages.head()) return "head";
  return fmt::format("layers.{}", stages.layer(stage));
}

/// What the watchdog calls it.
const char* name_of(Action action) {
  switch (action) {
    case Action::again:
      return "recomputation";
    case Action::loss:
      return "loss";
    case Action::backward:
      return "backward";
    case Action::offload:
    case Action::drop:
    case Action::bring_back:
      return "offload";
    default:
      return "forward";
  }
}

/// Does what an event says of a unit.
void run_on_shards(shard::ModelShards& shards, const Event& event) {
  switch (event.action) {
    case Action::gather:
      return shards.gather(event.index);
    case Action::open:
      return shards.open(event.index);
    case Action::close:
      return shards.close(event.index);
    case Action::release:
      return shards.release(event.index);
    case Action::open_gradient:
      return shards.open_gradient(event.index);
    case Action::reduce:
      return shards.reduce_gradient(event.index, Pass::more_follow);
    case Action::reduce_last:
      return shards.reduce_gradient(event.index, Pass::last);
    case Action::finish:
      return shards.finish_gradients();
    case Action::publish:
      return;  // by the update
    default:
      core::check(false, "shards compute nothing");
  }
}

std::string_view name_of_unit(const Engine& engine, const Event& event) {
  if (event.action == Action::finish) return "";
  return engine.shards.map().unit(event.index).name;
}

}  // namespace

void run_events(const Engine& engine, const Stages& stages, const std::vector<Event>& events,
                bool computes, const std::function<void(const Event&)>& compute,
                const UpdateUnit& update) {
  comm::Activity* activity = activity_of(engine);
  const auto concerns = [&](std::string_view subject) {
    if (activity != nullptr) activity->set_subject(subject);
  };
  for (auto event = events.begin(); event != events.end();) {
    const auto of_stage = std::find_if(event, events.end(), [](const Event& e) {
      return is_of_stage(e.action) || moves_activations(e.action) || e.action == Action::update;
    });
    // What comes and goes between two computations.
    engine.shards.together([&] {
      for (; event != of_stage; ++event) {
        concerns(name_of_unit(engine, *event));
        run_on_shards(engine.shards, *event);
      }
    });
    concerns("");
    if (event == events.end()) return;
    if (event->action == Action::update) {
      const std::string unit(name_of_unit(engine, *event));
      concerns(unit);
      const trace::Span span(trace::main_row, "optimizer", unit);
      update(event->index);
    } else if (computes) {
      const std::string stage = name_of(stages, event->index);
      concerns(stage);
      const comm::Activity::Work work(activity, name_of(event->action), stage);
      const trace::Span span(trace::main_row, name_of(event->action), stage);
      compute(*event);
    }
    if (event->action == Action::loss) core::fault::hit("step.bwd");
    ++event;
  }
}

}  // namespace finetune::train
