// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/resumer.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/adapter_base.hpp"
#include "base/base_hash.hpp"
#include "base/fp8_files.hpp"
#include "base/initial_weights.hpp"
#include "base/mxfp4_files.hpp"
#include "base/packed_files.hpp"
#include "base/peft_weights.hpp"
#include "checkpoint/format/retire.hpp"
#include "comm/agree.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "metrics/tensorboard/record_events.hpp"
#include "train/run/detail/patience.hpp"
#include "weights/model_files.hpp"

namespace finetune::train {
namespace {

/// How the files have what is trained, where that is in few bits; else null.
const char* few_bits_of(const weights::ModelFiles& files, const model::Parameter& row) {
  if (!row.trainable) return nullptr;
  return base::is_fp8_in(files, row) ? "FP8" : base::is_mxfp4_in(files, row) ? "MXFP4" : nullptr;
}

}  // namespace

ResumeInput resume_input(const Input& input) {
  return {.identity = identity_of(input),
          .checkpoint = input.checkpoint,
          .weights = {.init = input.model.init,
                      .seed = static_cast<std::uint64_t>(input.train.seed),
                      .model_folder = input.model_folder,
                      .adapter_folder = input.adapter_folder,
                      .adapter = input.adapter.kind,
                      .architecture = input.architecture,
                      .parameters = input.parameters},
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
  const auto found = find_and_load(report);
  if (found) {
    restore(*found);
  } else {
    initialise();
  }
  continue_run(found, report.bytes_read, watch.seconds());
  return std::move(start_);
}

std::optional<checkpoint::FoundCheckpoint> Resumer::find_and_load(checkpoint::LoadReport& report) {
  const checkpoint::Sources sources{.root = output_.root(),
                                    .resume = input_.checkpoint.resume,
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
  comm::agree_all(world_.world,
                  [&] { require_same_run(input_.identity, corpus_.fingerprint, found); });
  state_.take_wanted();
  if (has_base()) load_base();
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
  start_.total_samples = found.state.total_samples;
  start_.total_tokens = found.state.total_tokens;
  const core::Json& scale = found.state.loss_scale;
  if (state_.loss_scale() != nullptr && !scale.is_null())
    *state_.loss_scale() = optim::LossScale(scale, found.folder.string());
  log::info(fmt::format("continues from {} (step {} of {})", found.folder.string(), start_.step,
                        num_steps_));
  // The last start may have died between its last checkpoint and the removal of an older one.
  if (world_.world.is_root() && !found.is_local() && input_.checkpoint.resume == "auto")
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
  // Who goes back to an older checkpoint by name begins another run: what nodes hold of the old one
  // no longer counts.
  const bool is_same_run = found && input_.checkpoint.resume == "auto";
  start_.run_id = is_same_run ? found->state.run_id.value_or("") : std::string();
  comm::agree_all(world_.world, [&] {
    if (!world_.world.is_root()) return;
    start_.run_id = output_.set_run_id(start_.run_id);
    if (found)
      continue_files(*found, bytes_read, read_s);
    else
      begin_files();
  });
  start_.run_id = world_.world.broadcast_text(start_.run_id);
  output_.remove_local_of_others(start_.run_id);
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
  // Behind the last checkpoint of a finished run are no steps, but rows about the save itself.
  const bool is_finished = start_.step >= num_steps_ || input_.has_ended(start_.patience);
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

/// Calls `load(source)` on every rank with what the deck names.
template <typename Load>
void Resumer::with_source(const Load& load_from) {
  std::optional<weights::PeftAdapter> adapter;
  if (!input_.weights.adapter_folder.empty())
    adapter = weights::PeftAdapter::open(world_.world, input_.weights.adapter_folder,
                                         std::span(input_.weights.adapter, 1));
  const auto load = [&](base::WeightSource source) {
    if (!adapter) return load_from(source);
    load_from(base::with_peft(std::move(source), *adapter, input_.weights.parameters));
  };
  if (adapter)
    comm::agree_all(world_.world, [&] { adapter->require_fits(input_.weights.parameters); });
  const base::WeightSource random = base::random_source(
      input_.weights.architecture, input_.weights.parameters, input_.weights.seed);
  if (input_.weights.init == InitialWeights::random) {
    comm::agree_all(world_.world, [&] { load(random); });
    return;
  }
  const weights::ModelFiles files =
      weights::ModelFiles::open(world_.world, input_.weights.model_folder);
  // Before anything that communicates: one rank may see other files than the rest.
  comm::agree_all(world_.world, [&] {
    base::require_same_model(files, input_.weights.architecture, input_.weights.parameters);
    base::require_zero_biases(files, input_.weights.parameters);
  });
  comm::agree_all(world_.world, [&] {
    load(base::with_adapter(base::files_source(files, input_.weights.parameters), random,
                            input_.weights.parameters));
  });
  std::map<std::string, int> unpacked;
  for (const model::Parameter& row : input_.weights.parameters.rows) {
    const char* few_bits = few_bits_of(files, row);
    if (few_bits != nullptr) ++unpacked[few_bits];
    if (row.trainable && row.adapts < 0)
      start_.source_dtypes[row.name] =
          core::name(row.is_new || few_bits != nullptr ? input_.weights.architecture.file_dtype
                                                       : files.entry(row.name).dtype);
  }
  log::info(fmt::format("starts from {} ({})", input_.weights.model_folder.string(),
                        core::human_bytes(files.size_bytes())));
  for (const auto& [kind, num] : unpacked)
    log::info(fmt::format("unpacked {} tensors of {}, which are trained", num, kind));
}

void Resumer::initialise() {
  start_.total_samples = 0;
  start_.total_tokens = 0;
  with_source([&](const base::WeightSource& source) {
    base::load_weights(source, state_.shards());
    if (input_.weights.adapter_folder.empty()) base::set_magnitudes(state_.shards());
  });
  if (!input_.weights.adapter_folder.empty())
    log::info(fmt::format("continues from the adapter {}", input_.weights.adapter_folder.string()));
  if (input_.weights.init == InitialWeights::random) {
    for (const model::Parameter& row : input_.weights.parameters.rows)
      if (row.trainable && row.adapts < 0)
        start_.source_dtypes[row.name] = core::name(input_.weights.architecture.file_dtype);
    log::info(fmt::format("starts from random weights (seed {})", input_.weights.seed));
  }
  hash_base();
  if (input_.weights.adapter_folder.empty()) return;
  base::require_adapter_base(
      world_.world, input_.weights.adapter_folder,
      {.folder = input_.weights.model_folder,
       .table = input_.weights.parameters,
       .compute = input_.identity.compute,
       .hash = [&](core::DType dtype) { return base::frozen_hash(state_.shards(), dtype); }});
}

bool Resumer::has_base() const {
  return !std::ranges::all_of(input_.weights.parameters.rows, &model::Parameter::trainable);
}

/// What a checkpoint does not hold.
void Resumer::load_base() {
  with_source(
      [&](const base::WeightSource& source) { base::load_frozen(source, state_.shards()); });
}

checkpoint::FrozenBase Resumer::own_base() const {
  return base::describe_base(base_hash_, input_.identity.compute, input_.weights.parameters);
}

void Resumer::hash_base() {
  base_hash_ = base::frozen_hash(state_.shards());
  const auto hashes = world_.world.all_gather_text(base_hash_);
  const auto other = std::ranges::find_if(hashes, [&](const auto& h) { return h != hashes[0]; });
  if (other == hashes.end()) {
    if (!base_hash_.empty()) start_.base = own_base();
    return;
  }
  throw comm::AgreedError(core::ErrorKind::input,
                          core::to_string({input_.weights.model_folder.string(),
                                           fmt::format("rank {} read other weights than rank 0",
                                                       other - hashes.begin()),
                                           "all copies of the frozen weights must be the same",
                                           "Check that all nodes see the same files."}));
}

}  // namespace finetune::train
