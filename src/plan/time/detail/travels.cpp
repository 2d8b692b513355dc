// SPDX-License-Identifier: Apache-2.0
#include "plan/time/detail/travels.hpp"

#include <utility>

#include "schedule/pass.hpp"

namespace finetune::plan {
namespace {

StageTravels travels_of(const model::CostTape& tape) {
  return {tape.forward_work().travels, tape.backward_work().travels, {}};
}

class Counter {
 public:
  explicit Counter(std::size_t num_units) : counts_(num_units), is_gathered_(num_units, false) {}

  void run(const std::vector<schedule::Event>& events, std::int64_t times) {
    using enum schedule::Action;
    for (const schedule::Event& event : events) {
      const auto unit = static_cast<std::size_t>(event.index);
      switch (event.action) {
        case gather:
        case open:
          if (!is_gathered_[unit]) counts_[unit].gathers += times;
          is_gathered_[unit] = true;
          break;
        case release:
          is_gathered_[unit] = false;
          break;
        case reduce:
        case reduce_last:
          counts_[unit].reductions += times;
          if (event.action == reduce_last) counts_[unit].over_replicas += times;
          break;
        default:
          break;
      }
    }
  }

  std::vector<UnitCounts> counts() && { return std::move(counts_); }

 private:
  std::vector<UnitCounts> counts_;
  std::vector<bool> is_gathered_;
};

}  // namespace

std::vector<StageTravels> plan_travels(const PlanInput& request, const model::ParameterTable& own) {
  const OpsCost cost(request, own, own_passes(request));
  std::vector<StageTravels> stages(static_cast<std::size_t>(cost.num_blocks()) + 2);
  if (share_of(request.parallel).is_whole()) return stages;
  stages.front() = travels_of(cost.embedding().tape);
  for (std::int64_t i = 0; i < cost.num_blocks(); ++i) {
    StageTravels& block = stages[static_cast<std::size_t>(i) + 1];
    block = travels_of(cost.block(i).tape);
    if (blocks_of(request).is_recomputed(static_cast<int>(i))) block.again = block.forward;
  }
  stages.back() = travels_of(cost.head().tape);
  return stages;
}

const char* name_of(model::Sharers among) {
  return among == model::Sharers::tp   ? groups::tp.name
         : among == model::Sharers::cp ? groups::cp.name
                                       : groups::ep_name;
}

GroupShape shape_of(model::Sharers among, const Mesh& mesh, const Ranks& ranks) {
  if (among == model::Sharers::ep) return shape_of_experts(mesh, ranks);
  return shape_of(among == model::Sharers::tp ? groups::tp : groups::cp, mesh, ranks);
}

double by_node_bytes(const model::Travel& travel, const GroupShape& group, const Links& links) {
  using enum model::Travel::Kind;
  switch (travel.kind) {
    case all_gather:
      return links.gathered_by_node(group, travel.bytes);
    case reduce_scatter:
      return links.reduced_by_node(group, travel.bytes);
    case all_reduce:
      return links.reduced_by_node(group, travel.bytes) +
             links.gathered_by_node(group, travel.bytes);
    case all_to_all:
      return links.swapped_by_node(group, travel.bytes);
    case ring:
      break;
  }
  return links.passed_by_node(group, travel.bytes);
}

std::vector<UnitCounts> count_collectives(const Plan& plan, const PlanInput& request,
                                          const schedule::Stages& stages) {
  const schedule::StepEvents events = make_step(stages, rules_of(request, plan.mesh));
  // A pass may find nothing gathered that later ones find, and a step what the one before left.
  const std::int64_t before_last = plan.batch.accumulation - 1;
  Counter counter(plan.shards.units().size());
  const auto run_step = [&](std::int64_t times) {
    if (before_last > 0) counter.run(events.pass, times);
    if (before_last > 1) counter.run(events.pass, times * (before_last - 1));
    counter.run(events.last, times);
    counter.run(events.end, times);
    counter.run(events.update, times);
  };
  run_step(0);
  run_step(1);
  return std::move(counter).counts();
}

}  // namespace finetune::plan
