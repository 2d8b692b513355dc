// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/start_notes.hpp"

#include <utility>
#include <vector>

#include "core/build_info.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/log_file.hpp"
#include "report/starts.hpp"

namespace finetune::train {
metrics::StartRecord describe_start(const Input& input, const plan::Plan& plan,
                                    const world::World& world, const comm::Topology& topology,
                                    std::int64_t num_steps) {
  using plan::Category;
  metrics::StartRecord record{.num_steps = num_steps,
                              .model = input.model_folder.string(),
                              .family = input.family->name,
                              .method = input.is_adapted() ? input.adapter.name : "full",
                              .num_parameters = plan.num_parameters,
                              .num_trainable = plan.num_trainable,
                              .num_ranks = topology.world_size,
                              .num_nodes = topology.num_nodes,
                              .hosts = topology.node_names,
                              .device = world.device.index >= 0 ? "gpu" : "cpu",
                              .mesh = world::to_string(plan.mesh, topology),
                              .build = core::build_stamp()};
  for (const Category category :
       {Category::weights, Category::gathered, Category::gradients, Category::states,
        Category::activations, Category::communication, Category::other})
    record.planned_bytes.emplace_back(plan::to_string(category), plan.bytes_of(category));
  record.planned_tensor_bytes = plan.tensor_bytes();
  return record;
}

bool StartNotes::is_last_unfinished() const {
  if (!writes_) return false;
  const std::vector<report::Start> starts = report::read_starts(root_);
  return !starts.empty() && !(starts.back().end && starts.back().end->exit_code == core::exit_done);
}

std::string StartNotes::begin(metrics::StartRecord record) {
  is_open_ = true;
  if (!writes_) return "";
  const report::LastStart last = report::last_start(root_);
  std::string line = report::start_line(last, record.step, record.num_steps);
  // The first start of a run is no news on a terminal.
  if (last.number > 0)
    log::info(line);
  else
    log::note(line);
  record.unix_time_s = core::unix_time_s();
  metrics::append_start(root_, record);
  return line;
}

bool StartNotes::end(std::int64_t step, int exit_code, const std::string& reason) {
  if (!std::exchange(is_open_, false)) return false;
  if (writes_)
    metrics::append_end(root_, {.unix_time_s = core::unix_time_s(),
                                .step = step,
                                .exit_code = exit_code,
                                .reason = reason});
  return true;
}

}  // namespace finetune::train
