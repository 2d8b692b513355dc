// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "comm/agree.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"
#include "data/text/model_template.hpp"
#include "evaluate_inputs.hpp"
#include "model_folders.hpp"
#include "tasks/results.hpp"
#include "tasks/task_set.hpp"
#include "tokenizer/tokenizer.hpp"
#include "train/corpus/corpus.hpp"
#include "train/infer/loaded_model.hpp"
#include "train/infer/task_folder.hpp"
#include "train/infer/task_run.hpp"
#include "train/input/described_model.hpp"
#include "train/run/stop.hpp"

namespace finetune::app {
namespace {

namespace fs = std::filesystem;

/// A model, or one with an adapter: a column of the table.
struct Candidate {
  std::string name;
  fs::path folder;
  fs::path adapter;
  bool uses_adapter = true;
};

/// The last names of paths that tell them apart.
std::string short_name(const fs::path& path, const std::vector<std::string>& all) {
  fs::path name = fs::path(path.string()).lexically_normal();
  if (name.filename().empty()) name = name.parent_path();
  const fs::path last = name.filename();
  const auto same = std::ranges::count_if(all, [&](const std::string& other) {
    fs::path of = fs::path(other).lexically_normal();
    if (of.filename().empty()) of = of.parent_path();
    return of.filename() == last;
  });
  return same > 1 ? name.string() : last.string();
}

std::vector<Candidate> candidates_of(const EvaluateArguments& how) {
  std::vector<std::string> all = how.models;
  all.insert(all.end(), how.adapters.begin(), how.adapters.end());
  std::vector<Candidate> candidates;
  for (const std::string& model : how.models)
    candidates.push_back({short_name(model, all), model, ""});
  for (const std::string& adapter : how.adapters)
    candidates.push_back({short_name(adapter, all), how.models.front(), adapter});
  // The first adapter brings the model itself with it.
  if (!how.adapters.empty()) {
    candidates.front().adapter = how.adapters.front();
    candidates.front().uses_adapter = false;
  }
  for (std::size_t i = 1; i < candidates.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (candidates[i].name == candidates[j].name)
        core::fail(core::ErrorKind::command_line,
                   {"finetune evaluate", fmt::format("{} is named twice", candidates[i].name),
                    "models are told apart by their folders", "Name each once."});
  return candidates;
}

/// What decides the numbers: an evaluation of another one begins anew.
std::string fingerprint_of(const EvaluateArguments& how, const std::vector<Candidate>& candidates,
                           const std::vector<tasks::AskedTask>& asked, core::DType dtype) {
  std::string text =
      fmt::format("{} {} {} {}\n", core::name(dtype), how.batch_tokens, how.limit, how.seed);
  for (const Candidate& one : candidates)
    for (const fs::path& folder : {one.folder, one.adapter})
      text += (folder.empty() ? "" : fs::absolute(folder).string()) + "\n";
  text += tasks::text_of(asked);
  return core::fingerprint(text);
}

core::DType dtype_of(const EvaluateArguments& how, core::DType of_files) {
  if (how.dtype == "bf16") return core::DType::bf16;
  if (how.dtype == "fp32") return core::DType::f32;
  return of_files == core::DType::bf16 ? core::DType::bf16 : core::DType::f32;
}

/// All tasks of one model; nothing if it was stopped.
std::optional<std::vector<tasks::Outcome>> ask(
    const comm::Communicator& world, const Candidate& candidate, train::LoadedModel& loaded,
    const std::vector<tasks::AskedTask>& asked, tasks::Progress& progress,
    const train::AskOptions& options, const train::Registry& registry) {
  const auto tokenizer =
      comm::agree(world, [&] { return tokenizer::Tokenizer::load(candidate.folder); });
  comm::agree_all(world, [&] { train::require_vocabulary(tokenizer, loaded.architecture()); });
  train::Engine engine = loaded.engine();
  engine.uses_adapter = candidate.uses_adapter;
  train::Asked who{engine, tokenizer, candidate.name};
  comm::agree_all(world, [&] {
    if (tasks::any_talks(asked))
      who.chat = data::choose_template("model", candidate.folder, tokenizer, registry.templates,
                                       "task.chat");
  });
  std::vector<tasks::Outcome> outcomes;
  for (const tasks::AskedTask& one : asked) {
    if (world.is_root())
      log::info(fmt::format("{}: {} questions to {}", one.task.name, one.questions.size(),
                            candidate.name));
    auto outcome = train::run_task(who, one.task, one.questions, progress, options);
    if (!outcome) return std::nullopt;
    outcomes.push_back(*std::move(outcome));
  }
  return outcomes;
}

/// By task, then by model: each beside the others.
std::vector<tasks::Outcome> by_task(std::vector<tasks::Outcome> outcomes,
                                    const std::vector<tasks::AskedTask>& asked) {
  std::vector<tasks::Outcome> ordered;
  for (const tasks::AskedTask& one : asked)
    for (tasks::Outcome& outcome : outcomes)
      if (outcome.task == one.task.name) ordered.push_back(std::move(outcome));
  return ordered;
}

}  // namespace

int run_evaluate(const comm::Environment* environment, const Arguments& arguments,
                 const train::Registry& registry) {
  const comm::Communicator world =
      environment != nullptr ? environment->world() : comm::Communicator();
  const EvaluateArguments how = resolved(world, arguments.evaluate, registry);
  const auto candidates = comm::agree(world, [&] {
    for (const std::string& folder : how.adapters)
      require_no_run(folder);
    return candidates_of(how);
  });
  const auto asked = comm::agree(world, [&] {
    return tasks::read_tasks({how.tasks.begin(), how.tasks.end()}, how.data, how.limit,
                             "finetune evaluate");
  });
  const core::DType dtype = dtype_of(
      how,
      train::describe_model(world, candidates.front().folder, registry).architecture.file_dtype);
  train::watch_signals();
  train::TaskFolder output(world, how.output);
  tasks::Progress progress = output.progress(
      comm::agree(world, [&] { return fingerprint_of(how, candidates, asked, dtype); }));
  const train::AskOptions options{.batch_tokens = how.batch_tokens,
                                  .batch = how.batch,
                                  .seed = static_cast<std::uint64_t>(how.seed),
                                  .should_stop = train::stop_is_asked};
  if (world.is_root())
    log::info(fmt::format("computed in {} on {} rank{} of {} thread{}", core::name(dtype),
                          world.size(), world.size() == 1 ? "" : "s", at::get_num_threads(),
                          at::get_num_threads() == 1 ? "" : "s"));
  std::vector<tasks::Outcome> outcomes;
  std::unique_ptr<train::LoadedModel> loaded;
  const Candidate* of_loaded = nullptr;
  for (const Candidate& candidate : candidates) {
    const bool is_loaded = of_loaded != nullptr && of_loaded->folder == candidate.folder &&
                           of_loaded->adapter == candidate.adapter;
    if (!is_loaded) {
      loaded.reset();
      loaded = std::make_unique<train::LoadedModel>(candidate.folder, registry, world, dtype,
                                                    candidate.adapter, arguments.device);
      of_loaded = &candidate;
    }
    auto of_model = ask(world, candidate, *loaded, asked, progress, options, registry);
    if (!of_model) {
      if (world.is_root())
        log::info(fmt::format("stopped by a signal: the same command goes on from {}",
                              output.folder().string()));
      return core::exit_resubmit;
    }
    std::ranges::move(*of_model, std::back_inserter(outcomes));
  }
  outcomes = by_task(std::move(outcomes), asked);
  const std::string table = tasks::table_of(tasks::figures_of(outcomes));
  output.finish(outcomes, table);
  if (world.is_root()) remove_exports(how);
  if (world.is_root())
    log::info(
        fmt::format("{}every answer: {}", table, (output.folder() / "samples.jsonl").string()));
  return core::exit_done;
}

}  // namespace finetune::app
