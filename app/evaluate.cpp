// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
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
#include "model_identity.hpp"
#include "option_names.hpp"
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

CheckpointNames names_of(const std::string& folder, const EvaluateInputs& inputs) {
  if (const auto found = inputs.checkpoints.find(folder); found != inputs.checkpoints.end())
    return found->second;
  const fs::path path = without_last_slash(folder);
  return {path.filename().string(), path.string()};
}

/// Their last names, or their paths where these are not enough to tell them apart.
std::vector<std::string> shown_names(const std::vector<std::string>& folders,
                                     const EvaluateInputs& inputs) {
  std::map<std::string, int> times;
  for (const std::string& folder : folders)
    ++times[names_of(folder, inputs).name];
  std::vector<std::string> shown;
  for (const std::string& folder : folders) {
    const CheckpointNames names = names_of(folder, inputs);
    shown.push_back(times[names.name] > 1 ? names.path : names.name);
  }
  return shown;
}

std::vector<Candidate> candidates_of(const EvaluateInputs& inputs) {
  const EvaluateArguments& how = inputs.how;
  std::vector<std::string> all = how.models;
  all.insert(all.end(), how.adapters.begin(), how.adapters.end());
  const std::vector<std::string> shown = shown_names(all, inputs);
  std::vector<Candidate> candidates;
  for (const std::string& model : how.models)
    candidates.push_back({shown[candidates.size()], model, ""});
  for (const std::string& adapter : how.adapters)
    candidates.push_back({shown[candidates.size()], how.models.front(), adapter});
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
/// `models`: their identity.
std::string fingerprint_of(const EvaluateArguments& how, const std::vector<Candidate>& candidates,
                           const std::vector<tasks::AskedTask>& asked, core::DType dtype,
                           const std::string& models) {
  std::string text = models + fmt::format("{} {} {} {}\n", core::name(dtype), how.batch_tokens,
                                          how.limit, how.seed);
  for (const Candidate& one : candidates)
    for (const fs::path& folder : {one.folder, one.adapter})
      text += (folder.empty() ? "" : fs::absolute(folder).string()) + "\n";
  text += tasks::text_of(asked);
  return core::fingerprint(text);
}

/// Of those that were named: exports have it in their names.
std::string identity_of(const comm::Communicator& world, const EvaluateInputs& inputs) {
  std::vector<fs::path> folders;
  for (const auto* each : {&inputs.how.models, &inputs.how.adapters})
    for (const std::string& folder : *each)
      if (!inputs.checkpoints.contains(folder)) folders.emplace_back(folder);
  return identity_of_models(world, folders);
}

/// --adapter takes what `finetune export` writes.
void require_adapters(const EvaluateArguments& how) {
  for (const std::string& folder : how.adapters)
    if (is_run(folder))
      core::fail(core::ErrorKind::input,
                 {folder, "is the output of a run, not an adapter",
                  "--adapter takes the folders of adapters that were exported",
                  fmt::format("Name it as a model, which it is compared with on its own: finetune "
                              "evaluate {} {}.",
                              how.models.empty() ? "MODEL" : how.models.front(), folder)});
}

core::DType dtype_of(const EvaluateArguments& how, core::DType of_files) {
  if (how.dtype == "bf16") return core::DType::bf16;
  if (how.dtype == "fp32") return core::DType::f32;
  return of_files == core::DType::bf16 ? core::DType::bf16 : core::DType::f32;
}

constexpr const char* key_of_template = "chat template of the model";

/// That of the adapter's folder, where it has one, or the model's.
data::ChatTemplate chat_of(const Candidate& candidate, const tokenizer::Tokenizer& tokenizer,
                           const train::Registry& registry) {
  const fs::path of_adapter = folder_with_template(
      candidate.uses_adapter ? candidate.adapter : fs::path(), key_of_template);
  const data::ModelTemplates there =
      data::model_templates(of_adapter.empty() ? candidate.folder : of_adapter, key_of_template);
  if (!there.standard && there.named.empty())
    core::fail(core::ErrorKind::input,
               {candidate.folder.string(), "the model has no chat template",
                "a task with chat = true asks as a user does, and evaluate takes the model's own "
                "template",
                "Put chat_template.jinja into the folder, or leave out chat = true."});
  return data::choose_template("model", candidate.folder, tokenizer, registry.templates,
                               key_of_template, of_adapter);
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
    if (tasks::any_talks(asked)) who.chat = chat_of(candidate, tokenizer, registry);
  });
  std::vector<tasks::Outcome> outcomes;
  for (const tasks::AskedTask& one : asked) {
    if (world.is_root())
      log::info(fmt::format("{}: {} questions to {}", one.task.name, one.questions.size(),
                            candidate.name));
    std::optional<tasks::Outcome> outcome;
    try {
      outcome = train::run_task(who, one.task, one.questions, progress, options);
    } catch (const comm::AgreedError& error) {
      throw comm::AgreedError(error.kind(), with_options(error.what(), key_of_template));
    }
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
  comm::agree_all(world, [&] {
    if (world.is_root()) require_adapters(arguments.evaluate);
  });
  const EvaluateInputs inputs = resolved(world, arguments.evaluate, registry);
  const EvaluateArguments& how = inputs.how;
  const auto candidates = comm::agree(world, [&] { return candidates_of(inputs); });
  const auto asked = comm::agree(world, [&] {
    return tasks::read_tasks({how.tasks.begin(), how.tasks.end()}, how.data, how.limit,
                             "finetune evaluate");
  });
  core::DType dtype = core::DType::f32;
  for (const Candidate& candidate : candidates) {
    const auto described = train::describe_model(world, candidate.folder, registry);
    comm::agree_all(
        world, [&] { train::require_continues_text(described.architecture, candidate.folder); });
    if (&candidate == &candidates.front()) dtype = dtype_of(how, described.architecture.file_dtype);
  }
  train::watch_signals();
  const std::string models = identity_of(world, inputs);
  train::TaskFolder output(world, how.output);
  tasks::Progress progress = output.progress(
      comm::agree(world, [&] { return fingerprint_of(how, candidates, asked, dtype, models); }));
  const train::AskOptions options{.batch_tokens = how.batch_tokens,
                                  .batch = how.batch,
                                  .seed = static_cast<std::uint64_t>(how.seed),
                                  .should_stop = train::stop_is_asked};
  if (world.is_root())
    log::info(fmt::format("computed in {} on {} rank{} of {} thread{}", core::name(dtype),
                          world.size(), world.size() == 1 ? "" : "s", at::get_num_threads(),
                          at::get_num_threads() == 1 ? "" : "s"));
  std::vector<tasks::Outcome> outcomes;
  const shard::Groups groups = shard::one_copy(world);
  const shard::Options compute = comm::agree(world, [&] {
    try {
      return train::inference_options(dtype, world, arguments.device);
    } catch (const core::Error& error) {
      throw core::Error(error.kind(), with_options(error.what(), key_of_template));
    }
  });
  std::unique_ptr<train::LoadedModel> loaded;
  const Candidate* of_loaded = nullptr;
  for (const Candidate& candidate : candidates) {
    if (of_loaded == nullptr || of_loaded->folder != candidate.folder) {
      loaded.reset();
      loaded = std::make_unique<train::LoadedModel>(candidate.folder, registry, groups, compute,
                                                    train::WeightUse::read, candidate.adapter);
    } else if (of_loaded->adapter != candidate.adapter) {
      loaded->use_adapter(candidate.adapter);
    }
    of_loaded = &candidate;
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
