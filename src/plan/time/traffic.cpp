// SPDX-License-Identifier: Apache-2.0
#include "plan/time/traffic.hpp"

#include <algorithm>

#include "plan/layout/fp8_layout.hpp"
#include "plan/layout/stages.hpp"
#include "plan/machine/detail/collectives.hpp"
#include "plan/memory/memory.hpp"
#include "plan/time/detail/travels.hpp"

namespace finetune::plan {
namespace {

class StepTraffic {
 public:
  StepTraffic(const Plan& plan, const PlanInput& request, const model::ParameterTable& table)
      : plan_(plan),
        request_(request),
        own_(largest_table(plan.mesh, table, plan.bucket)),
        links_({}, !request.on_gpu),
        fsdp_{groups::fsdp.name, plan::shape_of(groups::fsdp, plan.mesh, plan.ranks)},
        expert_fsdp_{groups::expert_fsdp_name, shape_of_expert_shards(plan.mesh, plan.ranks)},
        dp_replicate_{groups::dp_replicate.name,
                      plan::shape_of(groups::dp_replicate, plan.mesh, plan.ranks)} {
    for (const model::Sharers among : all_sharers)
      sharers_.push_back({name_of(among), plan::shape_of(among, plan.mesh, plan.ranks)});
  }

  std::vector<GroupTraffic> make() && {
    const auto stages = stages_of(own_, plan_.shards, head_row(request_.architecture, own_));
    const auto counts = count_collectives(plan_, request_, stages);
    const auto in_8_bits = fp8_layouts(own_, plan_.shards);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      add_unit(plan_.shards.units()[i], counts[i]);
      if (in_8_bits[i])
        add_scales(plan_.shards.units()[i], in_8_bits[i]->message_bytes(plan_.numbers.compute));
    }
    for (const StageTravels& stage : plan_travels(request_, own_))
      for (const auto* travels : {&stage.forward, &stage.backward, &stage.again})
        for (const model::Travel& travel : *travels)
          add(travel, static_cast<double>(plan_.batch.accumulation));
    std::vector<GroupTraffic> all = {fsdp_, dp_replicate_};
    all.insert(all.end(), sharers_.begin(), sharers_.end());
    if (plan_.mesh.ep > 1) all.push_back(expert_fsdp_);
    std::erase_if(all, [](const GroupTraffic& group) { return group.shape.size == 1; });
    for (GroupTraffic& group : all)
      group.to_others_bytes = std::min(
          group.sent_bytes, group.by_node_bytes / static_cast<double>(plan_.ranks.ranks_per_node));
    return all;
  }

 private:
  GroupTraffic& group_of(const UnitLayout& unit) {
    return unit.is_of_experts ? expert_fsdp_ : fsdp_;
  }

  void add_unit(const UnitLayout& unit, const UnitCounts& counts) {
    GroupTraffic& group = group_of(unit);
    const Numbers& numbers = plan_.numbers;
    const double whole = static_cast<double>(unit.padded_count());
    const double others = static_cast<double>(unit.num_shards - 1);
    const auto shard = static_cast<double>(unit.shard_size);
    const auto element = static_cast<double>(unit.gathered_bytes(numbers.compute));
    const auto gathers = static_cast<double>(counts.gathers);
    group.sent_bytes += gathers * others * shard * element;
    group.by_node_bytes += gathers * links_.gathered_by_node(group.shape, whole * element);
    if (!unit.trainable) return;
    const auto wire = static_cast<double>(numbers.wire_bytes());
    const auto reductions = static_cast<double>(counts.reductions);
    const Summed summed = {numbers.wire_bytes(), numbers.sum_bytes(), numbers.is_fixed_point()};
    group.sent_bytes += reductions * others * shard * wire;
    group.by_node_bytes += reductions * links_.reduced_by_node(group.shape, whole * wire, summed);
    const auto copies = static_cast<double>(dp_replicate_.shape.size);
    const auto over = static_cast<double>(counts.over_replicas);
    dp_replicate_.sent_bytes += over * 2 * (copies - 1) / copies * shard * wire;
    dp_replicate_.by_node_bytes +=
        over * (links_.reduced_by_node(dp_replicate_.shape, shard * wire, summed) +
                links_.gathered_by_node(dp_replicate_.shape, shard * wire));
    if (const std::int64_t elements = elements_in_common(own_, unit); elements > 0)
      add({.kind = model::Travel::Kind::all_reduce, .bytes = 4 * static_cast<double>(elements)},
          sums_in_place(plan_.mesh, numbers) ? over : reductions);
  }

  /// Of a unit, once a step.
  void add_scales(const UnitLayout& unit, std::int64_t message_bytes) {
    GroupTraffic& group = group_of(unit);
    const auto message = static_cast<double>(message_bytes);
    const auto ranks = static_cast<double>(group.shape.size);
    group.sent_bytes += (ranks - 1) * message;
    group.by_node_bytes += links_.gathered_by_node(group.shape, ranks * message);
  }

  void add(const model::Travel& travel, double times) {
    GroupTraffic& group = sharers_[static_cast<std::size_t>(travel.among)];
    group.sent_bytes += times * travel.sent_bytes(group.shape.size);
    group.by_node_bytes += times * by_node_bytes(travel, group.shape, links_);
  }

  const Plan& plan_;
  const PlanInput& request_;
  model::ParameterTable own_;
  Links links_;
  GroupTraffic fsdp_, expert_fsdp_, dp_replicate_;
  std::vector<GroupTraffic> sharers_;
};

}  // namespace

std::vector<GroupTraffic> plan_traffic(const Plan& plan, const PlanInput& request,
                                       const model::ParameterTable& table) {
  return StepTraffic(plan, request, table).make();
}

}  // namespace finetune::plan
