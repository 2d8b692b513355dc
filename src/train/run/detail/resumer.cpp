// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/resumer.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/adapter_base.hpp"
#include "checkpoint/format/retire.hpp"
#include "comm/agree.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "metrics/tensorboard/record_events.hpp"
#include "train/run/detail/patience.hpp"

namespace finetune::train {
ResumeInput resume_input(const Input& input) {
  return {.identity = identity_of(input),
          .checkpoint = input.checkpoint,
          .weights = first_weights(input),
          .writes_events = input.metrics.tensorboard,
          .has_ended = [&input](const core::Json& state) {
            return patience_of(input, state).is_lost();
          }};
}

Resumer::Resumer(ResumeInput input, const plan::Numbers& numbers, const world::World& world,
                 const Corpus& corpus, std::string arithmetic, std::int64_t num_steps,
                 OutputFolder& output, State& state)
    : input_(std::move(input)),
      numbers_(numbers),
      world_(world),
      corpus_(corpus),
      arithmetic_(std::move(arithmetic)),
      num_steps_(num_steps),
      output_(output),
      state_(state) {}

StartingPoint Resumer::restore_or_initialise() {
  const core::Stopwatch watch;
  checkpoint::LoadReport report;
  read_branch();
  const auto found = find_and_load(report);
  if (found) {
    restore(*found);
  } else {
    initialise();
  }
  continue_run(found, report.bytes_read, watch.seconds());
  return std::move(start_);
}

void Resumer::read_branch() {
  const std::string& asked = input_.checkpoint.resume;
  comm::agree_all(world_.world, [&] {
    if (!world_.world.is_root()) return;
    branch_ = checkpoint::read_branch(output_.root());
    resume_ = checkpoint::without_number(asked);
    const checkpoint::Line& line = branch_.line;
    if (!line.was_begun_by(asked)) return;
    resume_ = "auto";
    std::string next = checkpoint::once_more(asked);
    while (line.was_begun_by(next))
      next = checkpoint::once_more(next);
    log::info(fmt::format(
        "checkpoint.resume = \"{}\" went back before: the branch written last (run {}) is "
        "continued; to go back once more, set checkpoint.resume = \"{}\"",
        asked, core::printable(line.run_id), next));
  });
  resume_ = world_.world.broadcast_text(resume_);
}

std::optional<checkpoint::FoundCheckpoint> Resumer::find_and_load(checkpoint::LoadReport& report) {
  const checkpoint::Sources sources{.root = output_.root(),
                                    .resume = resume_,
                                    .local_root = output_.local_root(),
                                    .node = world_.node,
                                    .run_id = output_.run_id(),
                                    .accept = [&](const checkpoint::FoundCheckpoint& found) {
                                      found.state.require(found.folder / checkpoint::state_name);
                                      require_same_optimizer(input_.identity, found);
                                      require_same_keys(input_.identity, found);
                                    }};
  return checkpoint::find_and_load(
      world_.world, sources, [&] { return state_.wanted(); }, &report);
}

void Resumer::restore(const checkpoint::FoundCheckpoint& found) {
  DataIdentity data{corpus_.fingerprint, corpus_.tokens_fingerprint};
  // The root speaks for all.
  if (world_.world.is_root()) data.change_since = corpus_.change_since;
  comm::agree_all(world_.world, [&] { require_same_run(input_.identity, data, found); });
  state_.take_wanted();
  if (input_.weights.has_base()) load_frozen_weights(input_.weights, world_, state_.shards());
  hash_base();
  comm::agree_all(world_.world, [&] { require_same_base(input_.identity, own_base(), found); });
  state_.shards().publish_all();
  warn_of_other_results(found);
  start_.step = found.step;
  start_.level = found.is_local() ? checkpoint::Level::local : checkpoint::Level::shared;
  start_.source_dtypes = found.state.source_dtypes;
  start_.validation_loss = found.state.validation_loss;
  start_.score = found.state.score;
  start_.patience = found.state.patience.value_or(core::Json());
  start_.noise = found.state.noise.value_or(core::Json());
  start_.total_samples = found.state.total_samples;
  start_.total_tokens = found.state.total_tokens;
  const core::Json& scale = found.state.loss_scale;
  if (state_.loss_scale() != nullptr && !scale.is_null())
    *state_.loss_scale() = optim::LossScale(scale, found.folder.string());
  log::info(fmt::format("continues from {} (step {} of {})", found.folder.string(), start_.step,
                        num_steps_));
  // The last start may have died between its last checkpoint and the removal of an older one.
  if (world_.world.is_root() && !found.is_local() && resume_ == "auto")
    checkpoint::retire(output_.root(), input_.checkpoint.retention(), found.step);
}

void Resumer::warn_of_other_results(const checkpoint::FoundCheckpoint& found) const {
  const std::int64_t threads = found.state.threads.value_or(0);
  if (numbers_.is_fixed_point() && threads != at::get_num_threads()) {
    log::warn(fmt::format(
        "{} was trained with {} threads per rank, this start has {}: its results will not be "
        "identical to those of an uninterrupted run (OMP_NUM_THREADS sets the threads)",
        found.folder.string(), threads, at::get_num_threads()));
  }
  warn_of_other_arithmetic(input_.identity, arithmetic_, found);
}

void Resumer::continue_run(const std::optional<checkpoint::FoundCheckpoint>& found,
                           std::int64_t bytes_read, double read_s) {
  comm::agree_all(world_.world, [&] {
    if (!world_.world.is_root()) return;
    checkpoint::Line line = take_line(found);
    start_.run_id = std::move(line.run_id);
    start_.lineage = std::move(line.lineage);
    // Before its metrics are cut: those that are left take a copy along.
    output_.run_folder()->leave_others();
    if (!branch_.others.empty() && resume_ == "auto")
      checkpoint::tell_others(output_.root(), checkpoint::read_branch(output_.root()));
    if (found)
      continue_files(*found, bytes_read, read_s);
    else
      begin_files();
  });
  start_.run_id = world_.world.broadcast_text(start_.run_id);
  output_.remove_local_of_others(start_.run_id);
}

checkpoint::Line Resumer::take_line(const std::optional<checkpoint::FoundCheckpoint>& found) {
  using checkpoint::Line;
  checkpoint::RunFolder& folder = *output_.run_folder();
  const Line saved_by = found ? found->state.line() : Line();
  if (resume_ != "auto") {
    // Another run from here on: what nodes hold of the one before no longer counts.
    Line line = checkpoint::go_back(input_.checkpoint.resume, branch_.line,
                                    found ? &saved_by : nullptr, found ? found->step : 0);
    line.lineage.branch = branch_.highest + (branch_.holds_any() ? 1 : 0);
    return folder.begin_branch(std::move(line));
  }
  if (!found) return folder.continue_line(branch_.is_begun ? branch_.line : Line());
  // An older checkpoint of its line is gone on from by the same run.
  const bool is_of_line = branch_.line.holds(saved_by.run_id, found->step);
  Line line = is_of_line ? branch_.line : saved_by;
  // A run of the earliest versions, which gets an id now.
  if (line.run_id.empty()) line.lineage.parents.push_back({"", found->step});
  return folder.continue_line(std::move(line));
}

void Resumer::begin_files() {
  start_.files.metrics.emplace(output_.begin_metrics());
  for (const std::string& record : corpus_.records)
    start_.files.metrics->append(record);
  metrics::set_aside_event_files(output_.root());
  if (input_.writes_events) start_.files.events.emplace(output_.root(), start_.step + 1);
}

void Resumer::continue_files(const checkpoint::FoundCheckpoint& found, std::int64_t bytes_read,
                             double read_s) {
  // Behind the last checkpoint of a finished run are no steps, but rows about the save itself; of
  // one that goes back there may be any.
  const bool is_finished =
      resume_ == "auto" && (start_.step >= num_steps_ || input_.has_ended(start_.patience));
  start_.files.metrics.emplace(output_.continue_metrics(found.state.metrics_bytes, is_finished));
  if (is_finished) return;  // they stay as they are
  const metrics::ResumeRecord record{.step = found.step, .bytes = bytes_read, .read_s = read_s};
  start_.files.metrics->append(metrics::to_json(record));
  // Also where no more are written: those of earlier starts would show lost steps.
  metrics::cut_event_files(output_.root(), start_.step);
  if (!input_.writes_events) return;
  start_.files.events.emplace(output_.root(), start_.step + 1);
  start_.files.events->add(metrics::event_of(record));
}

void Resumer::initialise() {
  start_.total_samples = 0;
  start_.total_tokens = 0;
  start_.source_dtypes = load_first_weights(input_.weights, world_, state_.shards());
  hash_base();
  require_base_of_adapter(input_.weights, input_.identity.compute, world_, state_.shards());
}

checkpoint::FrozenBase Resumer::own_base() const {
  return base::describe_base(base_hash_, input_.identity.compute, input_.weights.parameters);
}

void Resumer::hash_base() {
  base_hash_ = agreed_base_hash(input_.weights, world_, state_.shards());
  if (!base_hash_.empty()) start_.base = own_base();
}

}  // namespace finetune::train
