// SPDX-License-Identifier: Apache-2.0
#include "train/run.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "checkpoint/find.hpp"
#include "checkpoint/retire.hpp"
#include "comm/activity.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "core/memory.hpp"
#include "core/text.hpp"
#include "metrics/memory.hpp"
#include "optim/schedule.hpp"
#include "shard/device_memory.hpp"
#include "train/answers.hpp"
#include "train/initial_weights.hpp"
#include "train/replicas.hpp"
#include "train/resume.hpp"
#include "train/step.hpp"
#include "train/stop.hpp"
#include "weights/model_files.hpp"

namespace finetune::train {
namespace {

std::int64_t count_steps(const Input& input, const data::Sampler& sampler) {
  return input.train.max_steps >= 0 ? input.train.max_steps
                                    : input.train.epochs * sampler.steps_per_epoch();
}

/// A new run in the folder of an old one begins its own metrics and leaves the old ones beside.
void keep_old_metrics(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::file_size(path, error) == 0 || error) return;
  std::filesystem::path kept;
  for (int i = 1; kept.empty() || std::filesystem::exists(kept); ++i) {
    kept = path.string() + fmt::format(".old-{}", i);
  }
  std::filesystem::rename(path, kept);
  log::warn(fmt::format("{} of an older run is now {}", path.string(), kept.string()));
}

}  // namespace

Run::Run(const Input& input, const plan::Plan& plan, const world::World& world,
         const Registry& registry)
    : input_(input),
      plan_(plan),
      world_(world),
      // First of all the output: who cannot write should not wait for the tokenizer to hear it.
      corpus_((make_output_folder(), load_corpus(input, registry, world))),
      state_(input, plan, world),
      times_(world.world, state_.shards().groups(), world.host),
      num_steps_(count_steps(input, corpus_.training.sampler())) {
  if (input.metrics.answers > 0 && !corpus_.questions) {
    log::warn(
        corpus_.has_answers
            ? "metrics.answers is set, but there are no questions to answer: set "
              "data.validation_path to a file of them"
            : "metrics.answers is set, but running text asks no questions: nothing is answered");
  }
  restore_or_initialise();
  // Only now: a restart that is refused leaves the deck of the run it does not fit.
  write_resolved_deck();
  const auto style = world_.world.is_root() ? metrics::Progress::style_of_stdout()
                                            : metrics::Progress::Style::silent;
  progress_ = metrics::Progress(style, num_steps_, input_.metrics.log_steps);
}

void Run::make_output_folder() {
  comm::agree_all(world_.world, [&] {
    if (!world_.world.is_root()) return;
    std::error_code error;
    std::filesystem::create_directories(input_.train.output, error);
    if (error) {
      core::fail(core::ErrorKind::create,
                 {input_.train.output, "cannot be created", error.message(),
                  "Set train.output to a folder you may write to."});
    }
  });
}

void Run::write_resolved_deck() {
  comm::agree_all(world_.world, [&] {
    if (!world_.world.is_root()) return;
    core::write_text_atomically(std::filesystem::path(input_.train.output) / "input.resolved.toml",
                                input_.resolved_deck);
  });
}

void Run::initialise() {
  if (input_.model.init == "random") {
    randomize(input_.architecture, input_.parameters, static_cast<std::uint64_t>(input_.train.seed),
              state_.shards());
    for (const model::Parameter& row : input_.parameters.rows) {
      source_dtypes_[row.name] = core::name(input_.architecture.file_dtype);
    }
    log::info(fmt::format("starts from random weights (seed {})", input_.train.seed));
    return;
  }
  const weights::ModelFiles files = weights::ModelFiles::open(world_.world, input_.model_folder);
  comm::agree_all(world_.world, [&] {
    import_weights(files, input_.architecture, input_.parameters, state_.shards());
  });
  for (const model::Parameter& row : input_.parameters.rows) {
    source_dtypes_[row.name] = core::name(files.entry(row.name).dtype);
  }
  log::info(fmt::format("starts from {} ({})", input_.model_folder.string(),
                        core::human_bytes(files.size_bytes())));
}

void Run::restore_or_initialise() {
  const std::filesystem::path root = input_.train.output;
  std::int64_t metrics_bytes = 0;
  const auto wanted = state_.wanted();
  const auto found =
      checkpoint::find_and_load(world_.world, root, input_.checkpoint.resume, wanted);
  if (found) {
    comm::agree_all(world_.world, [&] { require_same_run(input_, corpus_.fingerprint, *found); });
    const std::int64_t threads = found->state.value("threads", std::int64_t{0});
    if (plan_.numbers.is_fixed_point() && threads != at::get_num_threads()) {
      log::warn(
          fmt::format("{} was trained with {} threads a rank, this start has {}: its bits will "
                      "not be those of an uninterrupted run (OMP_NUM_THREADS sets them)",
                      found->folder.string(), threads, at::get_num_threads()));
    }
    state_.take_wanted();
    state_.shards().publish_all();
    steps_done_ = found->step;
    last_saved_ = found->step;
    source_dtypes_ = found->state.at("source_dtypes");
    if (optim::LossScale* scale = state_.loss_scale())
      *scale = optim::LossScale(found->state.at("loss_scale"), found->folder.string());
    metrics_bytes = found->state.at("metrics_bytes").get<std::int64_t>();
    log::info(fmt::format("goes on from {} (step {} of {})", found->folder.string(), steps_done_,
                          num_steps_));
  } else {
    state_.release();
    initialise();
  }
  comm::agree_all(world_.world, [&] {
    if (!world_.world.is_root()) return;
    if (!found) keep_old_metrics(root / "metrics.jsonl");
    records_.emplace(root / "metrics.jsonl", metrics_bytes);
  });
}

core::Json Run::describe() const {
  return describe_run(
      input_,
      {.step = steps_done_,
       .metrics_bytes = records_ ? records_->size_bytes() : 0,
       .data_fingerprint = corpus_.fingerprint,
       .source_dtypes = source_dtypes_,
       .loss_scale = state_.loss_scale() != nullptr ? state_.loss_scale()->to_json() : core::Json(),
       .threads = at::get_num_threads()});
}

void Run::save() {
  progress_.pause();
  const auto slices = state_.stored();
  const checkpoint::SaveOptions options{.files = input_.checkpoint.layout()};
  const auto report =
      checkpoint::save(world_.world, world_.node, world_.node_index, input_.train.output,
                       steps_done_, describe(), slices, options);
  state_.release();
  last_saved_ = steps_done_;
  times_.add_checkpoint_s(report.total_s);
  log::info(fmt::format("saved {} ({} in {:.2f} s)", report.folder.string(),
                        core::human_bytes(report.payload_bytes), report.total_s));
  checkpoint::retire(world_.world, input_.train.output, input_.checkpoint.save_total_limit,
                     steps_done_);
}

void Run::validate(const char* when) {
  if (!corpus_.validation) return;
  progress_.pause();
  const Evaluation result = evaluate(state_.engine(), world_.batch, *corpus_.validation);
  metrics::ValidationRecord record{
      .step = steps_done_, .validation_loss = result.loss, .exact_match = std::nullopt};
  std::string text = fmt::format("{}: validation loss {:.4f}", when, result.loss);
  if (corpus_.has_answers) {
    record.exact_match = result.exact_match;
    text +=
        fmt::format(", exact match {:.1f} % of {}", 100 * result.exact_match, result.num_samples);
  }
  log::info(text);
  if (records_) records_->append(metrics::to_json(record));
}

void Run::print_answers() {
  if (input_.metrics.answers == 0 || !corpus_.questions) return;
  progress_.pause();
  train::print_answers(state_.engine(), corpus_.tokenizer, *corpus_.questions, input_.metrics);
}

void Run::step() {
  if (comm::Activity* activity = world_.world.activity()) activity->set_step(steps_done_ + 1);
  const core::Stopwatch watch;
  const optim::Schedule schedule(input_.optimizer, num_steps_);
  const data::StepData data = corpus_.training.step(steps_done_);
  const double data_s = watch.seconds();
  const double lr = schedule.lr(steps_done_);
  const StepResult result = run_step(state_.engine(), world_.batch, data, state_.optimizer(),
                                     {.step = steps_done_,
                                      .lr = lr,
                                      .max_grad_norm = input_.optimizer.max_grad_norm,
                                      .loss_scale = state_.loss_scale()});
  ++steps_done_;
  const double step_s = watch.seconds();
  times_.add({.compute_s = step_s - data_s - result.exposed_s - result.optimizer_s,
              .exposed_s = result.exposed_s,
              .data_s = data_s,
              .optimizer_s = result.optimizer_s});
  std::optional<metrics::TimeReport> times;
  if (steps_done_ % input_.metrics.log_steps == 0) times = times_.report();
  const metrics::StepRecord record{.step = steps_done_,
                                   .loss = result.loss,
                                   .grad_norm = result.grad_norm,
                                   .lr = lr,
                                   .tokens = data.num_tokens,
                                   .tokens_per_s = static_cast<double>(data.num_tokens) / step_s,
                                   .step_s = step_s,
                                   .times = times};
  progress_.step(record);
  if (records_) records_->append(metrics::to_json(record));
  if (result.is_skipped) {
    progress_.pause();
    log::warn(
        fmt::format("step {}: gradients overflowed float16, the step is skipped; the loss "
                    "scale is now {}",
                    steps_done_, state_.loss_scale()->scale()));
  }
  if (input_.train.check_replicas)
    require_equal_replicas(state_.shards(), state_.optimizer(), world_, steps_done_);
}

void Run::tell_memory() {
  const at::Device device = state_.shards().options().device;
  const std::int64_t tensors = world_.world.all_reduce(
      device.is_cpu() ? metrics::tensor_bytes().peak : shard::peak_device_bytes(device),
      comm::Reduce::max);
  const std::int64_t process =
      world_.world.all_reduce(core::peak_resident_bytes(), comm::Reduce::max);
  log::info(
      fmt::format("memory of the rank that needed most: planned {}, {} of it for tensors; "
                  "tensors took {}, the process {}",
                  core::human_bytes(plan_.memory_bytes()), core::human_bytes(plan_.tensor_bytes()),
                  core::human_bytes(tensors), core::human_bytes(process)));
}

bool Run::any_rank_is_asked_to_stop() const {
  // A signal may reach one rank only, or reach the ranks in different steps.
  return world_.world.all_reduce(std::int64_t{stop_is_asked()}, comm::Reduce::max) != 0;
}

bool Run::is_save_due() const {
  return input_.checkpoint.save_steps > 0 && steps_done_ % input_.checkpoint.save_steps == 0;
}

int Run::loop() {
  watch_signals();
  const core::Stopwatch watch;
  const std::int64_t first = steps_done_;
  const std::int64_t stop_at = input_.train.stop_after_steps > 0
                                   ? std::min(num_steps_, first + input_.train.stop_after_steps)
                                   : num_steps_;
  if (first == 0) {
    validate("before training");
    print_answers();
  }
  while (steps_done_ < stop_at) {
    step();
    if (steps_done_ == num_steps_) break;
    // Validation first: a checkpoint covers the metrics written before it, and a restart drops
    // later ones.
    const bool validation_due =
        input_.train.validate_steps > 0 && steps_done_ % input_.train.validate_steps == 0;
    if (validation_due) validate(fmt::format("step {}", steps_done_).c_str());
    if (is_save_due()) save();
    if (any_rank_is_asked_to_stop()) break;
  }
  if (steps_done_ >= num_steps_ && (steps_done_ > first || num_steps_ == 0)) {
    validate("after training");
    print_answers();
  }
  if (last_saved_ != steps_done_) save();
  progress_.pause();
  if (steps_done_ > first) {
    log::info(metrics::to_string(times_.total()));
    tell_memory();
  }
  if (steps_done_ < num_steps_) {
    const bool goes_on = input_.checkpoint.resume == "auto";
    log::info(fmt::format("stopped after step {} of {}; {}", steps_done_, num_steps_,
                          goes_on ? "start the same command again to go on"
                                  : "set checkpoint.resume = \"auto\" and start again to go on"));
    return core::exit_resubmit;
  }
  if (steps_done_ == first && first > 0) {
    log::info(fmt::format("nothing left to do: all {} steps are done", num_steps_));
  } else {
    log::info(fmt::format("done: {} step{} in {}", steps_done_ - first,
                          steps_done_ - first == 1 ? "" : "s",
                          metrics::human_seconds(watch.seconds())));
  }
  return core::exit_done;
}

}  // namespace finetune::train
