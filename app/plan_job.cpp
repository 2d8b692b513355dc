// SPDX-License-Identifier: Apache-2.0
#include "plan_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "core/log.hpp"
#include "plan/time/job.hpp"
#include "plan_time.hpp"

namespace finetune::app {

Job job_of(const Arguments& arguments, const plan::PlanInput& request, const plan::Plan& plan,
           const plan::Machine& machine) {
  const std::int64_t ranks = request.ranks.ranks_per_node;
  Job job;
  job.deck = arguments.path;
  job.settings = arguments.overrides;
  job.num_nodes = request.ranks.num_nodes;
  job.ranks_per_node = ranks;
  job.cores_per_rank = arguments.cores_per_rank.value_or(
      machine.cores_per_node > 0 ? plan::cores_per_rank(machine, request.ranks) : 0);
  job.gpus_per_node = request.on_gpu ? ranks : 0;
  job.account = arguments.account;
  job.queue = arguments.queue;
  job.options = arguments.job_options;
  // Of a GPU's rank the plan counts the smaller part of host memory.
  if (request.on_gpu && machine.node_memory_gib <= 0) return job;
  const std::int64_t of_rank = request.on_gpu ? plan.host_bytes() : plan.memory_bytes();
  const double needed = plan_margin * static_cast<double>(of_rank * ranks);
  job.node_memory_bytes =
      plan::node_memory_to_ask(machine, request.ranks, static_cast<std::int64_t>(needed));
  return job;
}

std::string script_without_rates(const Arguments& arguments, const plan::PlanInput& request,
                                 const plan::Plan& plan, const plan::Machine& machine) {
  Job job = job_of(arguments, request, plan, machine);
  job.walltime_s =
      static_cast<std::int64_t>(std::min(3600 * machine.max_walltime_hours, longest_walltime_s));
  job.note = machine.name;
  // A Slurm that has not been told what memory its nodes have gives none to who asks for some.
  if (machine.cores_per_node > 0 && machine.node_memory_gib <= 0) job.node_memory_bytes = 0;
  log::warn(fmt::format(
      "the job asks for {} node{} of {} rank{}{}; --nodes and --ranks-per-node change that, and "
      "--machine plans the time it needs",
      job.num_nodes, job.num_nodes == 1 ? "" : "s", job.ranks_per_node,
      job.ranks_per_node == 1 ? "" : "s",
      job.walltime_s > 0 ? " and " + duration(static_cast<double>(job.walltime_s))
                         : std::string(" and no time limit of its own")));
  return jobscript(*arguments.jobscript, job);
}

}  // namespace finetune::app
