// SPDX-License-Identifier: Apache-2.0
// How a run begins: its folder, its weights, or the checkpoint it goes on from.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <sstream>

#include "checkpoint/find.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/local.hpp"
#include "checkpoint/retire.hpp"
#include "comm/agree.hpp"
#include "core/build_info.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"
#include "core/log_file.hpp"
#include "core/text.hpp"
#include "train/adapter_base.hpp"
#include "train/arithmetic.hpp"
#include "train/base_hash.hpp"
#include "train/choices.hpp"
#include "train/initial_weights.hpp"
#include "train/packed_files.hpp"
#include "train/peft_weights.hpp"
#include "train/resume.hpp"
#include "train/run.hpp"
#include "weights/model_files.hpp"

namespace finetune::train {
namespace {

std::int64_t bytes_of(const std::filesystem::path& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<std::int64_t>(bytes);
}

/// A link, or a slip of the pen, may lead to a folder that is not meant for a run.
std::string foreign_text(const std::filesystem::path& output,
                         const std::vector<std::string>& names) {
  constexpr std::size_t most_named = 5;
  std::error_code error;
  const auto target = std::filesystem::canonical(output, error);
  const bool is_link = !error && std::filesystem::is_symlink(output, error);
  const std::vector<std::string> first(
      names.begin(),
      names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), most_named)));
  return core::to_string(
      {fmt::format("train.output = {}", output.string()),
       fmt::format("{} holds other things than a run: {}{}",
                   is_link ? fmt::format("it leads to {}, which", target.string()) : "it",
                   fmt::join(first, ", "),
                   names.size() > most_named
                       ? fmt::format(" and {} more", names.size() - most_named)
                       : std::string()),
       "checkpoints and metrics are written next to them", "Name a folder of its own."});
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

/// Every start of a batch job has another limit, and is yet a start of the same run.
std::string without_time_limit(const std::string& deck) {
  std::istringstream lines(deck);
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("max_seconds")) kept += line + "\n";
  }
  return kept;
}

}  // namespace

void Run::claim_output_folder() {
  const checkpoint::Access access = input_.checkpoint.who();
  ::umask(0777 & ~checkpoint::folder_mode(access));  // also for metrics.jsonl and the like
  comm::agree_all(world_.world, [&] {
    if (!world_.world.is_root()) return;
    const std::filesystem::path output = input_.train.output;
    const auto others = checkpoint::foreign_entries(output);
    folder_ = std::make_unique<checkpoint::RunFolder>(output, access);
    if (input_.sharding_is_chosen) folder_->set_choice(describe_choice(plan_.mesh, plan_.ranks));
    log::copy_to(output / "finetune.log", checkpoint::file_mode(access));
    if (!others.empty()) log::warn(foreign_text(output, others));
  });
}

std::filesystem::path Run::claim_local_folder() {
  if (!input_.checkpoint.has_local_level()) return {};
  const auto root =
      checkpoint::local_root(input_.checkpoint.local_dir, input_.train.output, world_.host);
  comm::agree_all(world_.world, [&] {
    if (world_.node.is_root()) checkpoint::make_local_root(root);
  });
  return root;
}

void Run::write_resolved_deck() {
  comm::agree_all(world_.world, [&] {
    if (!world_.world.is_root()) return;
    core::write_text_atomically(std::filesystem::path(input_.train.output) / "input.resolved.toml",
                                input_.resolved_deck);
  });
}

/// Calls `load(source)` on every rank with what the deck names.
template <typename Load>
void Run::with_source(const Load& load_from) {
  std::optional<weights::PeftAdapter> adapter;
  if (!input_.adapter_folder.empty())
    adapter = weights::PeftAdapter::open(world_.world, input_.adapter_folder);
  const auto load = [&](WeightSource source) {
    if (!adapter) return load_from(source);
    load_from(with_peft(std::move(source), *adapter, input_.parameters));
  };
  if (adapter) comm::agree_all(world_.world, [&] { adapter->require_fits(input_.parameters); });
  const WeightSource random = random_source(input_.architecture, input_.parameters,
                                            static_cast<std::uint64_t>(input_.train.seed));
  if (input_.model.init == "random") {
    comm::agree_all(world_.world, [&] { load(random); });
    return;
  }
  const weights::ModelFiles files = weights::ModelFiles::open(world_.world, input_.model_folder);
  // Before anything that communicates: one rank may see other files than the rest.
  comm::agree_all(world_.world, [&] {
    require_same_model(files, input_.architecture, input_.parameters);
    require_zero_biases(files, input_.parameters);
  });
  comm::agree_all(world_.world, [&] {
    load(with_adapter(files_source(files, input_.parameters), random, input_.parameters));
  });
  for (const model::Parameter& row : input_.parameters.rows)
    if (row.trainable && row.adapts < 0)
      source_dtypes_[row.name] = core::name(files.entry(row.name).dtype);
  log::info(fmt::format("starts from {} ({})", input_.model_folder.string(),
                        core::human_bytes(files.size_bytes())));
}

void Run::initialise() {
  with_source([&](const WeightSource& source) {
    load_weights(source, state_.shards());
    if (input_.adapter_folder.empty()) set_magnitudes(state_.shards());
  });
  if (!input_.adapter_folder.empty())
    log::info(fmt::format("continues from the adapter {}", input_.adapter_folder.string()));
  if (input_.model.init != "random") return;
  for (const model::Parameter& row : input_.parameters.rows)
    if (row.trainable && row.adapts < 0)
      source_dtypes_[row.name] = core::name(input_.architecture.file_dtype);
  log::info(fmt::format("starts from random weights (seed {})", input_.train.seed));
}

/// What a checkpoint of an adapter does not hold.
void Run::load_base() {
  with_source([&](const WeightSource& source) { load_frozen(source, state_.shards()); });
}

void Run::hash_base() {
  base_hash_ = frozen_hash(state_.shards());
  const auto hashes = world_.world.all_gather_text(base_hash_);
  const auto other = std::ranges::find_if(hashes, [&](const auto& h) { return h != hashes[0]; });
  if (other == hashes.end()) return;
  throw comm::AgreedError(core::ErrorKind::input,
                          core::to_string({input_.model_folder.string(),
                                           fmt::format("rank {} read other weights than rank 0",
                                                       other - hashes.begin()),
                                           "all copies of the frozen weights must be the same",
                                           "Check that all nodes see the same files."}));
}

void Run::restore_or_initialise() {
  const std::filesystem::path root = input_.train.output;
  const core::Stopwatch watch;
  const auto wanted = state_.wanted();
  checkpoint::LoadReport report;
  run_id_ = world_.world.broadcast_text(folder_ ? folder_->run_id() : "");
  const checkpoint::Sources sources{.root = root,
                                    .resume = input_.checkpoint.resume,
                                    .local_root = local_root_,
                                    .node = world_.node,
                                    .run_id = run_id_,
                                    .accept = [&](const checkpoint::Found& found) {
                                      found.state.require(found.folder / checkpoint::state_name);
                                      require_same_optimizer(input_, found);
                                      require_same_keys(input_, found);
                                    }};
  const auto found = checkpoint::find_and_load(world_.world, sources, wanted, &report);
  if (found) {
    comm::agree_all(world_.world, [&] { require_same_run(input_, corpus_.fingerprint, *found); });
    state_.take_wanted();
    if (input_.is_adapted()) load_base();
    hash_base();
    comm::agree_all(world_.world, [&] { require_same_base(input_, base_hash_, *found); });
    state_.shards().publish_all();
    tell_resumed(*found);
    // The last start may have died between its last checkpoint and the removal of an older one.
    if (folder_ && !found->is_local() && input_.checkpoint.resume == "auto")
      checkpoint::retire(root, input_.checkpoint.retention(), found->step);
  } else {
    state_.release();
    initialise();
    hash_base();
    if (!input_.adapter_folder.empty())
      require_adapter_base(
          world_.world, input_.adapter_folder,
          {.folder = input_.model_folder,
           .table = input_.parameters,
           .compute = input_.numbers().compute,
           .hash = [&](core::DType dtype) { return frozen_hash(state_.shards(), dtype); }});
  }
  // Who goes back to an older checkpoint by name begins another run: what nodes hold of the old one
  // no longer counts.
  const bool is_same_run = found && input_.checkpoint.resume == "auto";
  run_id_ = is_same_run ? found->state.run_id.value_or("") : std::string();
  comm::agree_all(world_.world, [&] {
    if (!world_.world.is_root()) return;
    folder_->set_run_id(run_id_);
    run_id_ = folder_->run_id();
    if (!found) keep_old_metrics(root / "metrics.jsonl");
    std::int64_t keep_bytes = found ? found->state.metrics_bytes : 0;
    // Behind the last checkpoint of a finished run are no steps, but rows about the save itself.
    if (found && steps_done_ >= num_steps_)
      keep_bytes = std::max(keep_bytes, bytes_of(root / "metrics.jsonl"));
    records_.emplace(root / "metrics.jsonl", keep_bytes);
    for (const std::string& record : corpus_.records) {
      if (!found) records_->append(record);
    }
    if (!found || steps_done_ >= num_steps_) return;  // a finished run stays as it is
    records_->append(metrics::to_json(metrics::ResumeRecord{
        .step = found->step, .bytes = report.bytes_read, .read_s = watch.seconds()}));
  });
  run_id_ = world_.world.broadcast_text(run_id_);
  if (!local_root_.empty() && world_.node.is_root())
    checkpoint::remove_other_runs(local_root_, run_id_);
}

void Run::tell_resumed(const checkpoint::Found& found) {
  const std::int64_t threads = found.state.threads.value_or(0);
  if (plan_.numbers.is_fixed_point() && threads != at::get_num_threads()) {
    log::warn(fmt::format(
        "{} was trained with {} threads per rank, this start has {}: its results will not be "
        "identical to those of an uninterrupted run (OMP_NUM_THREADS sets the threads)",
        found.folder.string(), threads, at::get_num_threads()));
  }
  warn_of_other_arithmetic(input_, arithmetic(), found);
  steps_done_ = found.step;
  checkpoints_.start_from(found.is_local() ? checkpoint::Level::local : checkpoint::Level::shared,
                          found.step);
  source_dtypes_ = found.state.source_dtypes;
  const core::Json& scale = found.state.loss_scale;
  if (state_.loss_scale() != nullptr && !scale.is_null())
    *state_.loss_scale() = optim::LossScale(scale, found.folder.string());
  validation_loss_ = found.state.validation_loss;
  log::info(fmt::format("continues from {} (step {} of {})", found.folder.string(), steps_done_,
                        num_steps_));
}

std::string Run::arithmetic() const {
  return describe_arithmetic(plan_.numbers, world_.device.index >= 0);
}

checkpoint::RunState Run::describe() const {
  std::optional<checkpoint::FrozenBase> base;
  if (!base_hash_.empty())
    base = describe_base(base_hash_, input_.numbers().compute, input_.parameters);
  return describe_run(
      input_,
      {.step = steps_done_,
       .metrics_bytes = records_ ? records_->size_bytes() : 0,
       .data_fingerprint = corpus_.fingerprint,
       .source_dtypes = source_dtypes_,
       .loss_scale = state_.loss_scale() != nullptr ? state_.loss_scale()->to_json() : core::Json(),
       .threads = at::get_num_threads(),
       .arithmetic = arithmetic(),
       .run_id = run_id_,
       .validation_loss = validation_loss_,
       .base = base});
}

void Run::note_start() {
  comm::agree_all(world_.world, [&] {
    if (folder_)
      folder_->begin(
          steps_done_,
          core::fingerprint(without_time_limit(input_.resolved_deck) + core::build_stamp()),
          input_.checkpoint.max_starts);
  });
}

}  // namespace finetune::train
