// SPDX-License-Identifier: Apache-2.0
#include "plan/time/time.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "plan/layout/fp8_layout.hpp"
#include "plan/layout/stages.hpp"
#include "plan/machine/detail/collectives.hpp"
#include "plan/memory/detail/activations.hpp"
#include "plan/memory/detail/ops_cost.hpp"
#include "plan/memory/memory.hpp"
#include "plan/time/detail/timeline.hpp"
#include "plan/time/detail/travels.hpp"
#include "plan/time/detail/work.hpp"

namespace finetune::plan {
namespace {

/// `work` is that of a micro-batch on one rank.
double flops_per_token(const MicroBatchWork& work, const Plan& plan) {
  const auto tokens = static_cast<double>(plan.batch.micro_batch * plan.batch.max_seq_length);
  // Of a sequence that ranks share each computes its part.
  const auto sharing = static_cast<double>(plan.mesh.size() / plan.mesh.size(groups::batch));
  return work.model_flops() / tokens * sharing;
}

class StepPlan {
 public:
  StepPlan(const Plan& plan, const PlanInput& request, const model::ParameterTable& table,
           const Machine& machine, Passes passes)
      : plan_(plan),
        request_(request),
        numbers_(request.numbers),
        machine_(machine),
        passes_(passes),
        table_(largest_table(plan.mesh, table, request.parallel.bucket)),
        stages_(stages_of(table_, plan.shards, head_row(request.architecture, table_))),
        rates_(machine, numbers_.compute),
        links_(machine, !request.on_gpu),
        work_(plan_work(request, table_, rates_, passes)),
        travels_(plan_travels(request, table_)),
        traffic_(plan_traffic(plan, request, table)) {}

  TimePlan make() const {
    schedule::Rules rules = rules_of(request_, plan_.mesh);
    rules.offloads = offloads();
    const StepSeconds step =
        play(plan_.shards, stages_, times(),
             {.schedule = rules,
              .accumulation = plan_.batch.accumulation,
              .alone = plan_.mesh.alone,
              .gathers_ahead = request_.on_gpu,
              .has_links_to_copies = request_.on_gpu && shards_stay_on_nodes()});
    const auto accumulation = static_cast<double>(plan_.batch.accumulation);
    const Work all = accumulation * work_.total();
    TimePlan time;
    time.optimizer_s = step.optimizer;
    time.exposed_s = step.exposed;
    time.held_up_s = step.held_up;
    time.copying_s = step.copying;
    time.products_s = all.products_s;
    time.attention_s = all.attention_s;
    time.memory_s = all.memory_s + accumulation * adding_s();
    time.program_s = std::max(0.0, step.total - step.optimizer - step.exposed - step.held_up -
                                       time.products_s - time.attention_s - time.memory_s);
    time.step_s = step.total;
    time.communication_s = step.communication;
    time.sent_by_node_bytes = step.sent_bytes;
    add_groups(time);
    add_throughput(time);
    return time;
  }

 private:
  void add_throughput(TimePlan& time) const {
    const auto ranks = static_cast<double>(plan_.ranks.world_size);
    const auto tokens = static_cast<double>(plan_.batch.max_tokens_per_step());
    time.tokens_per_s = tokens / time.step_s;
    time.tokens_per_s_of_rank = time.tokens_per_s / ranks;
    time.flops_per_s_of_rank = flops_per_token(work_, plan_) * time.tokens_per_s_of_rank;
    if (machine_.peak_tflops > 0)
      time.mfu = time.flops_per_s_of_rank / (1e12 * machine_.peak_tflops);
  }

  PlannedTimes times() const {
    PlannedTimes times;
    // Selective recomputation happens inside a block's backward pass.
    const auto stage = [&](const StageWork& work) {
      const StageTravels& travels = travels_[times.stages.size()];
      StageSeconds& seconds = times.stages.emplace_back();
      seconds.forward_waits = waits_s(travels.forward);
      seconds.backward_waits = waits_s(travels.backward);
      seconds.again_waits = waits_s(travels.again);
      seconds.forward = rates_.seconds(work.forward);
      seconds.backward =
          rates_.seconds(work.is_recomputed ? work.backward : work.backward + work.again);
      seconds.again = work.is_recomputed ? rates_.seconds(work.again) : 0;
    };
    stage(work_.embedding);
    for (const StageWork& block : work_.blocks)
      stage(block);
    stage(work_.head);
    times.stages.resize(static_cast<std::size_t>(
        std::max(stages_.num_stages(), static_cast<int>(times.stages.size()))));
    for (const UnitLayout& unit : plan_.shards.units())
      times.units.push_back(times_of(unit));
    times.updates = updates();
    add_copies(times);
    return times;
  }

  void add_copies(PlannedTimes& times) const {
    if (request_.offloaded_blocks == 0) return;
    const std::vector<std::int64_t> kept = kept_by_blocks(request_, table_);
    for (std::size_t i = 0; i < kept.size(); ++i)
      times.stages[static_cast<std::size_t>(stages_.block(static_cast<std::int64_t>(i)))].offload =
          static_cast<double>(kept[i]) / (1e9 * machine_.link_to_host_gb_per_s());
  }

  GroupShape shape_of(const model::Travel& travel) const {
    return plan::shape_of(travel.among, plan_.mesh, plan_.ranks);
  }

  double seconds_of(const model::Travel& travel) const {
    using enum model::Travel::Kind;
    const GroupShape group = shape_of(travel);
    const double bytes = travel.bytes;
    return travel.kind == all_gather       ? links_.all_gather_s(group, bytes)
           : travel.kind == reduce_scatter ? links_.reduce_scatter_s(group, bytes)
           : travel.kind == all_reduce     ? links_.all_reduce_s(group, bytes)
           : travel.kind == all_to_all     ? links_.all_to_all_s(group, bytes)
                                           : links_.pass_around_s(group, bytes);
  }

  /// What is computed meanwhile hides it, but for what the same cores copy.
  double waits_s(const model::Travel& travel) const {
    model::OpWork beside;
    beside.products = travel.beside_products;
    beside.attention = travel.beside_attention;
    const double hidden_s = rates_.seconds(timed(beside, rates_));
    const double copying_s = links_.gather_copying_s(shape_of(travel), travel.bytes);
    return std::max(copying_s, seconds_of(travel) - hidden_s);
  }
  double waits_s(const std::vector<model::Travel>& travels) const {
    double sum = 0;
    for (const model::Travel& travel : travels)
      sum += waits_s(travel);
    return sum;
  }

  double in_common_s(const UnitLayout& unit) const {
    const auto bytes =
        static_cast<double>(core::size_bytes(core::DType::f32) * elements_in_common(table_, unit));
    return links_.all_reduce_s(plan::shape_of(groups::tp, plan_.mesh, plan_.ranks), bytes);
  }

  void add_groups(TimePlan& time) const {
    for (const GroupTraffic& traffic : traffic_)
      time.groups.push_back({traffic});
    const auto group = [&](const std::string& name) {
      return std::ranges::find_if(time.groups,
                                  [&](const GroupTime& g) { return g.traffic.name == name; });
    };
    const auto counts = count_collectives(plan_, request_, stages_);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const UnitLayout& unit = plan_.shards.units()[i];
      const UnitTimes times = times_of(unit);
      const auto add = [&](const std::string& name, double seconds) {
        if (const auto it = group(name); it != time.groups.end()) it->seconds += seconds;
      };
      const auto reductions = static_cast<double>(counts[i].reductions);
      add(unit.is_of_experts ? groups::expert_fsdp_name : groups::fsdp.name,
          static_cast<double>(counts[i].gathers) * times.gather.seconds +
              reductions * times.reduce.seconds);
      add(groups::dp_replicate.name,
          static_cast<double>(counts[i].over_replicas) * times.over_replicas.seconds);
      if (times.in_common_s == 0) continue;
      const auto tp = group(groups::tp.name);
      const double sums = sums_in_place(plan_.mesh, plan_.numbers)
                              ? static_cast<double>(counts[i].over_replicas)
                              : reductions;
      tp->seconds += sums * times.in_common_s;
      tp->exposed_s += sums * times.in_common_s;
    }
    const auto accumulation = static_cast<double>(plan_.batch.accumulation);
    for (const StageTravels& stage : travels_)
      for (const auto* travels : {&stage.forward, &stage.backward, &stage.again})
        for (const model::Travel& travel : *travels) {
          const auto it = group(name_of(travel.among));
          it->seconds += accumulation * seconds_of(travel);
          it->exposed_s += accumulation * waits_s(travel);
        }
    for (const model::Sharers among : all_sharers)
      if (const auto it = group(name_of(among)); it != time.groups.end()) {
        time.communication_s += it->seconds;
        time.sent_by_node_bytes += it->traffic.by_node_bytes;
      }
  }

  /// Then sums over copies of the model go over other links than shards do.
  bool shards_stay_on_nodes() const {
    return plan::shape_of(groups::fsdp, plan_.mesh, plan_.ranks).num_nodes == 1;
  }

  double whole(const UnitLayout& unit) const { return static_cast<double>(unit.padded_count()); }
  double gathered_bytes(const UnitLayout& unit) const {
    return whole(unit) * static_cast<double>(unit.gathered_bytes(numbers_.compute));
  }
  double wire_bytes(const UnitLayout& unit) const {
    return whole(unit) * static_cast<double>(numbers_.wire_bytes());
  }
  double shard_wire_bytes(const UnitLayout& unit) const {
    return static_cast<double>(unit.shard_size * numbers_.wire_bytes());
  }
  double memory_s(double bytes) const { return rates_.passes(bytes).memory_s; }

  /// Of the ranks that have shards of a unit.
  GroupShape shape_of_shards(const UnitLayout& unit) const {
    return unit.is_of_experts ? shape_of_expert_shards(plan_.mesh, plan_.ranks)
                              : plan::shape_of(groups::fsdp, plan_.mesh, plan_.ranks);
  }

  UnitTimes times_of(const UnitLayout& unit) const {
    const GroupShape shards = shape_of_shards(unit);
    const GroupShape replicas = plan::shape_of(groups::dp_replicate, plan_.mesh, plan_.ranks);
    const double gathered = gathered_bytes(unit), wire = wire_bytes(unit);
    const Summed summed = {.element_bytes = numbers_.wire_bytes(),
                           .sum_bytes = numbers_.sum_bytes(),
                           .any_order = numbers_.is_fixed_point()};
    UnitTimes times;
    if (plan_.mesh.communicates(groups::fsdp))
      times.gather = {links_.all_gather_s(shards, gathered),
                      links_.gathered_by_node(shards, gathered),
                      links_.gather_copying_s(shards, gathered)};
    if (!unit.trainable) return times;
    times.in_common_s = in_common_s(unit);
    if (plan_.mesh.communicates(groups::fsdp)) {
      times.reduce = {links_.reduce_scatter_s(shards, wire, summed),
                      links_.reduced_by_node(shards, wire, summed),
                      links_.reduce_copying_s(shards, wire, summed)};
      // MPI's groups pack what they send and add what they receive, on a thread of their own.
      if (!request_.on_gpu) {
        const double packing_s = memory_s(packing_bytes(unit));
        times.reduce.seconds += packing_s;
        times.reduce.processor_s += packing_s;
      }
    }
    times.add_s = adding_s(unit);
    const double sums = shard_wire_bytes(unit);
    times.over_replicas = {
        links_.all_reduce_s(replicas, sums, summed),
        links_.reduced_by_node(replicas, sums, summed) + links_.gathered_by_node(replicas, sums),
        links_.reduce_copying_s(replicas, sums, summed) + links_.gather_copying_s(replicas, sums)};
    return times;
  }

  /// Gradients are read and written as they are sent; sums are read and written.
  double packing_bytes(const UnitLayout& unit) const {
    const auto element = static_cast<double>(core::size_bytes(numbers_.compute));
    const auto wire = static_cast<double>(numbers_.wire_bytes());
    const auto sum = static_cast<double>(numbers_.sum_bytes());
    return whole(unit) * (element + 2 * wire + 2 * sum);
  }

  /// To the sums, by the thread that computes.
  double adding_s(const UnitLayout& unit) const {
    const auto element = static_cast<double>(core::size_bytes(numbers_.compute));
    const auto wire = static_cast<double>(numbers_.wire_bytes());
    const auto sum = static_cast<double>(numbers_.sum_bytes());
    const bool is_alone = !plan_.mesh.communicates(groups::fsdp);
    if (is_alone && numbers_.compute == core::DType::f32 && !numbers_.is_fixed_point()) return 0;
    if (is_alone) return memory_s(whole(unit) * (element + 2 * sum));
    if (!request_.on_gpu) return 0;
    const double cast = wire == element ? 0 : whole(unit) * (element + wire);
    return memory_s(cast + static_cast<double>(unit.shard_size) * (wire + 2 * sum));
  }

  double adding_s() const {
    double sum = 0;
    for (const UnitLayout& unit : plan_.shards.units())
      sum += unit.trainable ? adding_s(unit) : 0;
    return sum;
  }

  bool offloads() const { return request_.offloads_optimizer && request_.on_gpu; }

  /// By unit.
  std::vector<UpdateSeconds> updates() const {
    const auto elements = static_cast<double>(plan_.shards.shard_elements());
    const double all_s = updates_s();
    const auto in_8_bits = fp8_layouts(table_, plan_.shards);
    std::vector<UpdateSeconds> times;
    for (const UnitLayout& unit : plan_.shards.units()) {
      UpdateSeconds& of = times.emplace_back();
      if (!unit.trainable) continue;
      const auto count = static_cast<double>(unit.shard_size);
      of.update = all_s * count / elements;
      if (const auto& layout = in_8_bits[times.size() - 1]) of.update += rounding_s(unit, *layout);
      if (!offloads()) continue;
      const double per_byte_s = count / (1e9 * machine_.host_gb_per_s);
      of.fetch = static_cast<double>(core::size_bytes(core::DType::f32)) * per_byte_s;
      of.publish = static_cast<double>(core::size_bytes(numbers_.compute)) * per_byte_s;
    }
    return times;
  }

  /// Largest magnitudes are found and exchanged, then values are divided and rounded.
  double rounding_s(const UnitLayout& unit, const Fp8Layout& layout) const {
    const auto element = static_cast<double>(core::size_bytes(numbers_.compute));
    const double own_s = memory_s(static_cast<double>(unit.shard_size) * (2 * element + 1));
    if (!plan_.mesh.communicates(groups::fsdp)) return own_s;
    const std::int64_t messages = unit.num_shards * layout.message_bytes(numbers_.compute);
    return own_s + links_.all_gather_s(shape_of_shards(unit), static_cast<double>(messages));
  }

  /// Of all units. The norm of the gradients is one more pass over them, and the copy to compute
  /// with is written.
  double updates_s() const {
    const OptimizerPasses& passes = request_.optimizer.passes;
    const auto elements = static_cast<double>(plan_.shards.shard_elements());
    const auto master = static_cast<double>(core::size_bytes(numbers_.master));
    double states = 0;
    for (const OptimizerState& state : request_.optimizer.states)
      if (state.is_of_elements())
        states += static_cast<double>(core::size_bytes(state.dtype_in(numbers_))) /
                  static_cast<double>(state.block);
    const double own = passes.weights * master + passes.states * states;
    const auto sum = static_cast<double>(numbers_.sum_bytes());
    const auto copy = numbers_.compute == numbers_.master
                          ? 0.0
                          : static_cast<double>(core::size_bytes(numbers_.compute));
    if (offloads()) {
      const auto gradient = static_cast<double>(core::size_bytes(core::DType::f32));
      return elements * (own + passes.gradients * gradient + copy) / (1e9 * machine_.host_gb_per_s);
    }
    const bool is_one_operation =
        passes_ == Passes::operations && passes.is_one_operation_in_fp32 &&
        numbers_.master == core::DType::f32 && numbers_.moments == core::DType::f32;
    const double beside = passes_ != Passes::fused && !is_one_operation ? passes.composed_bytes : 0;
    const auto rows = static_cast<double>(plan_.shards.units().size());
    return rates_.seconds(
        rates_.passes(elements * (own + (1 + passes.gradients) * sum + copy + beside), 4 * rows));
  }

  const Plan& plan_;
  const PlanInput& request_;
  const Numbers& numbers_;
  const Machine& machine_;
  Passes passes_;
  model::ParameterTable table_;
  schedule::Stages stages_;
  Rates rates_;
  Links links_;
  MicroBatchWork work_;
  std::vector<StageTravels> travels_;
  std::vector<GroupTraffic> traffic_;
};

}  // namespace

std::vector<std::string> missing_rates(const Machine& machine, const PlanInput& request) {
  std::vector<std::string> missing;
  const auto need = [&](const char* key, double value) {
    if (value <= 0) missing.emplace_back(key);
  };
  if (request.numbers.compute == core::DType::f32)
    need("fp32_tflops", machine.fp32_tflops);
  else
    need("bf16_tflops", machine.bf16_tflops);
  need("memory_gb_per_s", machine.memory_gb_per_s);
  if (request.ranks.ranks_per_node > 1) need("intra_gb_per_s", machine.intra_gb_per_s);
  if (request.ranks.num_nodes > 1) need("inter_gb_per_s", machine.inter_gb_per_s);
  if (request.offloads_optimizer && request.on_gpu) need("host_gb_per_s", machine.host_gb_per_s);
  if (request.offloaded_blocks > 0) need("host_link_gb_per_s", machine.link_to_host_gb_per_s());
  return missing;
}

Passes passes_of(const PlanInput& request) {
  return own_passes(request);
}

TimePlan plan_time(const Plan& plan, const PlanInput& request, const model::ParameterTable& table,
                   const Machine& machine, Passes passes) {
  core::check(missing_rates(machine, request).empty(), "the machine tells the rates of this job");
  return StepPlan(plan, request, table, machine, passes).make();
}

double model_flops_per_token(const Plan& plan, const PlanInput& request,
                             const model::ParameterTable& table) {
  const model::ParameterTable own = largest_table(plan.mesh, table, request.parallel.bucket);
  // Rates give seconds, which do not matter here.
  const Rates rates(Machine(), request.numbers.compute);
  return flops_per_token(plan_work(request, own, rates, own_passes(request)), plan);
}

}  // namespace finetune::plan
