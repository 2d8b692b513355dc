// SPDX-License-Identifier: Apache-2.0
#include "plan_time.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/text.hpp"

namespace finetune::app {
namespace {

std::string line(const std::string& name, const std::string& value) {
  return fmt::format("  {:<24} {}\n", name, value);
}

std::string rounded(double value) {
  return value < 100 ? fmt::format("{:.3g}", value)
                     : core::with_commas(static_cast<std::int64_t>(value + 0.5));
}

std::string three_figures(double value) {
  return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string gigabytes(double bytes) {
  return bytes >= 1e9 ? fmt::format("{:.1f} GB", bytes / 1e9)
                      : fmt::format("{:.1f} MB", bytes / 1e6);
}

/// A text without its last newline, as log::info wants it.
std::string without_end(std::string text) {
  text.pop_back();
  return text;
}

/// "tp 1.2 GB inside the node; fsdp 3.0 GB inside the node and 1.0 GB to others", per step.
std::string sent_text(const plan::TimePlan& time) {
  std::vector<std::string> parts;
  for (const plan::GroupTime& group : time.groups) {
    const plan::GroupTraffic& traffic = group.traffic;
    const double inside = traffic.sent_bytes - traffic.to_others_bytes;
    std::vector<std::string> links;
    if (inside > 0) links.push_back(gigabytes(inside) + " inside the node");
    if (traffic.to_others_bytes > 0)
      links.push_back(gigabytes(traffic.to_others_bytes) +
                      (links.empty() ? " to other nodes" : " to others"));
    if (!links.empty())
      parts.push_back(fmt::format("{} {}", traffic.name, fmt::join(links, " and ")));
  }
  return parts.empty() ? "nothing" : fmt::format("{}", fmt::join(parts, "; "));
}

/// "tp: 8 ranks inside a node, 1.2 GB per rank, 21.0 ms, 18.0 ms of them waiting"
std::string group_text(const plan::GroupTime& group) {
  const plan::GroupTraffic& traffic = group.traffic;
  const bool is_inside = traffic.shape.num_nodes == 1;
  std::string text = fmt::format(
      "{}: {} ranks {}, {} sent per rank, links busy {}", traffic.name, traffic.shape.size,
      is_inside ? "inside a node" : fmt::format("over {} nodes", traffic.shape.num_nodes),
      gigabytes(traffic.sent_bytes), duration(group.seconds));
  if (!is_inside) text += fmt::format(", {} per node to others", gigabytes(traffic.by_node_bytes));
  if (group.exposed_s > 0) text += fmt::format(", exposed {}", duration(group.exposed_s));
  return text;
}

bool is_of(const plan::Strategy& strategy, const plan::Mesh& mesh) {
  return strategy.mesh.axes == mesh.axes && strategy.mesh.ep == mesh.ep &&
         strategy.mesh.sharding == mesh.sharding;
}

/// Of the longest name.
std::size_t width_of(const std::vector<plan::Strategy>& strategies) {
  std::size_t width = 0;
  for (const plan::Strategy& strategy : strategies)
    width = std::max(width, strategy.name().size());
  return width;
}

std::string row_text(const plan::Strategy& strategy, std::size_t name_width, bool is_own) {
  return fmt::format("{:<{}} {:>9} per step  {:>6} waiting  {:>9} per rank{}{}", strategy.name(),
                     name_width, duration(strategy.time.step_s),
                     percent(strategy.time.exposed_share()),
                     core::human_bytes(strategy.memory_bytes),
                     !strategy.fits            ? "  does not fit"
                     : strategy.is_comfortable ? ""
                                               : "  leaves less memory free than choices do",
                     is_own ? "  (this plan)" : "");
}

}  // namespace

std::string duration(double seconds) {
  if (seconds < 1e-3) return three_figures(1e6 * seconds) + " us";
  if (seconds < 1) return three_figures(1e3 * seconds) + " ms";
  if (seconds < 120) return three_figures(seconds) + " s";
  if (seconds < 7200) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string time_text(const plan::Plan& plan, const plan::PlanInput& request,
                      const plan::Machine& machine, const plan::TimePlan& time) {
  std::string text = fmt::format("time on {}\n", machine.name.empty() ? "it" : machine.name);
  text += line("step", duration(time.step_s));
  const auto part = [&](const char* name, double seconds, const std::string& more = "") {
    if (seconds < 5e-4 * time.step_s && more.empty()) return;
    text += line(name, fmt::format("{:>10}  {:>6}{}", duration(seconds),
                                   percent(seconds / time.step_s), more));
  };
  part("  products", time.products_s);
  part("  attention", time.attention_s);
  part("  passes over memory", time.memory_s,
       request.on_gpu && !request.has_gpu_kernels
           ? "  by libtorch's operations; --gpu-kernels plans for kernels"
           : "");
  part("  starting operations", time.program_s);
  part("  optimizer", time.optimizer_s);
  if (plan.ranks.world_size > 1)
    part("  waiting for messages", time.exposed_s,
         fmt::format("  of {} in which links are busy{}", duration(time.communication_s),
                     time.sent_by_node_bytes > 0 ? fmt::format(", {} per node to others",
                                                               gigabytes(time.sent_by_node_bytes))
                                                 : std::string()));
  if (request.offloaded_blocks > 0)
    part("  waiting for the host", time.held_up_s,
         fmt::format("  of {} in which activations are on their way to and from it",
                     duration(time.copying_s)));
  if (plan.mesh.shares_computation())
    for (const plan::GroupTime& group : time.groups)
      text += line(&group == time.groups.data() ? "groups" : "", group_text(group));
  text += line("speed", fmt::format("{} tokens/s, {} per rank", rounded(time.tokens_per_s),
                                    rounded(time.tokens_per_s_of_rank)));
  if (!machine.is_measured)
    text += line("", std::string("computed from estimated rates") +
                         (machine.gpus_per_node > 0
                              ? ": this program has not been timed on GPUs yet"
                              : ": finetune check --save FILE measures those of the machine"));
  if (time.mfu > 0)
    text += line("", fmt::format("{:.1f} TFLOP/s per rank, {} of its peak (MFU)",
                                 time.flops_per_s_of_rank / 1e12, percent(time.mfu)));
  return without_end(text);
}

std::string meshes_text(const std::vector<plan::Strategy>& meshes, const plan::Mesh& own) {
  constexpr std::size_t most = 6;
  std::vector<plan::Strategy> shown;
  for (const plan::Strategy& mesh : meshes)
    if (is_of(mesh, own) || (shown.size() < most && mesh.fits)) shown.push_back(mesh);
  if (shown.empty()) return line("meshes", "none of them fits");
  std::string text;
  for (const plan::Strategy& mesh : shown) {
    text += line(text.empty() ? "meshes" : "", row_text(mesh, width_of(shown), is_of(mesh, own)));
    text += line("", "  a rank sends " + sent_text(mesh.time));
  }
  return text;
}

std::string strategies_text(const std::vector<plan::Strategy>& strategies, const plan::Mesh& own) {
  if (strategies.size() < 2) return "";
  std::string text;
  for (const plan::Strategy& strategy : strategies)
    text += line(text.empty() ? "strategies" : "",
                 row_text(strategy, width_of(strategies), is_of(strategy, own)));
  return text + line("", reason(strategies) + ".");
}

std::string run_text(const plan::Plan& plan, const plan::TimePlan& time, const RunLength& run) {
  if (run.num_steps <= 0)
    return line("run",
                fmt::format("how many steps {:g} epoch{} are follows from the data: --samples N or "
                            "train.max_steps says it, finetune plan DECK --data counts",
                            run.epochs, run.epochs == 1 ? "" : "s"));
  const double seconds = time.step_s * static_cast<double>(run.num_steps);
  return line("run",
              fmt::format("{} for {} steps, {} node-hours; without start and saves",
                          duration(seconds), core::with_commas(run.num_steps),
                          rounded(seconds / 3600 * static_cast<double>(plan.ranks.num_nodes))));
}

std::string saving_text(const plan::SavingPlan& saving, const plan::SavingRules& rules) {
  std::string text = line("checkpoint", gigabytes(static_cast<double>(saving.bytes)));
  if (saving.write_s > 0)
    text += line("", fmt::format("written{} in {}; training waits {}; read again in {}",
                                 rules.reads_back ? " and read back" : "", duration(saving.write_s),
                                 duration(saving.blocked_s), duration(saving.read_s)));
  if (saving.best_interval_s <= 0) return text;
  text +=
      line("", fmt::format("best every {} (Young/Daly; some node fails every {}): {} of the time "
                           "for saves and failures",
                           duration(saving.best_interval_s), duration(saving.mtbf_s),
                           percent(saving.best_loss)));
  if (rules.interval_s > 0)
    text += line("", fmt::format("the deck saves every {}: {}", duration(rules.interval_s),
                                 percent(saving.loss)));
  return text;
}

std::string scaling_text(const std::vector<plan::ScalingRow>& rows, plan::Scaling scaling,
                         double num_tokens) {
  std::size_t width = std::string("strategy").size();
  for (const plan::ScalingRow& row : rows)
    width = std::max(width, row.strategy.name().size());
  std::string text = fmt::format(
      "{}\n  {:>7} {:>8} {:>9}  {:<{}} {:>9} {:>13} {:>11} {:>8} {:>9}\n",
      scaling == plan::Scaling::weak
          ? "weak scaling: the global batch grows with the nodes (more of it needs more samples to "
            "the same loss)"
          : "strong scaling: the global batch stays; micro-batches shrink before ranks have none",
      "nodes", "ranks", "batch", "strategy", width, "step", "tokens/s", "efficiency", "waiting",
      num_tokens > 0 ? "run" : "");
  for (const plan::ScalingRow& row : rows) {
    const plan::TimePlan& time = row.strategy.time;
    text +=
        fmt::format("  {:>7} {:>8} {:>9}  {:<{}} {:>9} {:>13} {:>11} {:>8} {:>9}{}\n",
                    row.num_nodes, row.strategy.request.ranks.world_size, row.global_batch,
                    row.strategy.name(), width, duration(time.step_s), rounded(time.tokens_per_s),
                    percent(row.efficiency), percent(time.exposed_share()),
                    num_tokens > 0 ? duration(num_tokens / time.tokens_per_s) : std::string(),
                    row.has_idle_ranks ? "  ranks idle" : "");
  }
  return without_end(text);
}

}  // namespace finetune::app
