// SPDX-License-Identifier: Apache-2.0
#include "train/run/detail/task_keeper.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "checkpoint/format/layout.hpp"
#include "comm/agree.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"
#include "train/corpus/sources.hpp"
#include "train/infer/task_folder.hpp"
#include "train/infer/task_run.hpp"

namespace finetune::train {
namespace {

namespace fs = std::filesystem;

std::string name_of(std::int64_t step) {
  return fmt::format("step {}", step);
}

/// Stops before anything is computed: of a model that is gone only what is known counts.
bool at_once() {
  return true;
}

}  // namespace

TaskKeeper::TaskKeeper(const Input& input, const Registry& registry,
                       const comm::Communicator& world, const tokenizer::Tokenizer& tokenizer,
                       const fs::path& output)
    : settings_(input.evaluate), world_(world), tokenizer_(tokenizer), root_(output / folder_name) {
  if (!has_tasks()) return;
  comm::agree_all(world_, [&] {
    tasks_ = tasks::read_tasks(task_files(settings_, input.deck_path),
                               task_data(settings_, input.deck_path), settings_.limit,
                               input.deck_path.string() + ": evaluate.tasks");
    if (tasks::any_talks(tasks_)) {
      chat_ = chat_template_of(data_input(input), registry, tokenizer);
      chat_->kwargs = input.data.columns.template_kwargs;
    }
    asked_ =
        tasks::text_of(tasks_) + fmt::format("\n{} {}", settings_.batch_tokens, settings_.seed);
    // Weights begin as these say.
    for (const auto& [key, value] : input.fixed_values)
      asked_ += fmt::format("\n{} = {}", key, value);
  });
}

fs::path TaskKeeper::folder_of(std::int64_t step) const {
  return root_ / checkpoint::folder_name(step);
}

std::string TaskKeeper::fingerprint_of(std::int64_t step) const {
  return core::fingerprint(step == 0 ? asked_ : asked_ + run_id_);
}

void TaskKeeper::start_from(std::int64_t step, const std::string& run_id) {
  run_id_ = run_id;
  if (!world_.is_root()) return;
  std::error_code error;
  std::vector<fs::path> later;
  for (fs::directory_iterator i(root_, error), end; !error && i != end; i.increment(error)) {
    const auto of = checkpoint::step_of(i->path().filename().string());
    if (of && *of > step) later.push_back(i->path());
  }
  if (later.empty()) return;
  if (step > 0) {
    for (const fs::path& folder : later)
      fs::remove_all(folder, error);
    return;
  }
  fs::path kept;
  for (int i = 1; kept.empty() || fs::exists(kept, error); ++i)
    kept = root_.string() + fmt::format(".old-{}", i);
  fs::rename(root_, kept, error);
  log::warn(
      fmt::format("{} of an older run {}", root_.string(),
                  error ? "stays where it is: " + error.message() : "is now " + kept.string()));
}

bool TaskKeeper::is_unfinished(std::int64_t step) const {
  if (!has_tasks()) return false;
  std::error_code ignored;
  const fs::path folder = folder_of(step);
  const bool is_unfinished = world_.is_root() &&
                             fs::exists(folder / TaskFolder::progress_name, ignored) &&
                             !fs::exists(folder / TaskFolder::results_name, ignored);
  return world_.all_reduce(std::int64_t{is_unfinished}, comm::Reduce::max) != 0;
}

std::optional<std::vector<tasks::Outcome>> TaskKeeper::outcomes(
    const Engine& engine, std::int64_t step, tasks::Progress& progress,
    const std::function<bool()>& should_stop) const {
  const Asked who{engine, tokenizer_, name_of(step), chat_};
  const AskOptions options{.batch_tokens = settings_.batch_tokens,
                           .batch = settings_.batch,
                           .seed = static_cast<std::uint64_t>(settings_.seed),
                           .should_stop = should_stop};
  std::vector<tasks::Outcome> outcomes;
  for (const tasks::AskedTask& one : tasks_) {
    auto outcome = run_task(who, one.task, one.questions, progress, options);
    if (!outcome) return std::nullopt;
    outcomes.push_back(*std::move(outcome));
  }
  return outcomes;
}

/// Each behind that of the model that training began with, if it was asked the same.
std::vector<tasks::Outcome> TaskKeeper::beside_first(const Engine& engine,
                                                     std::vector<tasks::Outcome> own) const {
  tasks::Progress known = known_progress(world_, folder_of(0), fingerprint_of(0));
  auto first = known.size() > 0 ? outcomes(engine, 0, known, at_once) : std::nullopt;
  if (!first) return own;
  std::vector<tasks::Outcome> both;
  for (std::size_t i = 0; i < own.size(); ++i) {
    both.push_back(std::move((*first)[i]));
    both.push_back(std::move(own[i]));
  }
  return both;
}

std::optional<TaskResult> TaskKeeper::ask(const Engine& engine, std::int64_t step,
                                          const std::function<bool()>& should_stop) const {
  TaskFolder folder(world_, folder_of(step), TaskFolder::Writing::optional);
  tasks::Progress progress = folder.progress(fingerprint_of(step));
  auto own = outcomes(engine, step, progress, should_stop);
  if (!own) return std::nullopt;
  const auto all = step == 0 ? *std::move(own) : beside_first(engine, *std::move(own));
  std::vector<tasks::Figure> figures = tasks::figures_of(all);
  TaskResult result{.table = tasks::table_of(figures), .figures = {}};
  folder.finish(all, result.table,
                step == 0 ? TaskFolder::KeepProgress::yes : TaskFolder::KeepProgress::no);
  std::erase_if(figures, [&](const tasks::Figure& one) { return one.model != name_of(step); });
  result.figures = std::move(figures);
  return result;
}

metrics::EvaluationRecord record_of(std::int64_t step, const TaskResult& result) {
  metrics::EvaluationRecord record{.step = step, .figures = {}};
  for (const tasks::Figure& one : result.figures)
    record.figures.push_back(
        {one.task + "/" + one.metric, one.estimate.mean, one.estimate.standard_error});
  return record;
}

}  // namespace finetune::train
