// SPDX-License-Identifier: Apache-2.0
#include "evaluate_inputs.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/load/find.hpp"
#include "comm/agree.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "model_folders.hpp"
#include "output_lock.hpp"
#include "train/input/input.hpp"

namespace finetune::app {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_checkpoint(const fs::path& folder) {
  return is_there(folder / checkpoint::state_name);
}

bool has_checkpoint(const fs::path& run) {
  std::error_code ignored;
  for (fs::directory_iterator i(run, ignored), end; !ignored && i != end; i.increment(ignored))
    if (checkpoint::step_of(i->path().filename().string())) return true;
  return false;
}

fs::path exports_of(const EvaluateArguments& how) {
  return fs::path(how.output) / "exports";
}

/// A checkpoint as a folder that can be loaded, and the model that an adapter is put on.
struct Exported {
  std::string folder;
  std::string base;  ///< empty: it is no adapter
  CheckpointNames names;
};

/// Of a folder for exports of several runs, which may have the same name or be trained anew.
std::string export_name(const fs::path& run, const checkpoint::FoundCheckpoint& found) {
  constexpr std::int64_t largest_manifest_bytes = std::int64_t{1} << 30;
  const std::string manifest =
      core::read_text(found.folder / checkpoint::manifest_name, largest_manifest_bytes);
  return fmt::format("{}-{}-{}", run.filename().string(), checkpoint::folder_name(found.step),
                     core::fingerprint(run.string() + "\n" + manifest).substr(0, 8));
}

Exported exported(const fs::path& path, const EvaluateArguments& how,
                  const train::Registry& registry) {
  const checkpoint::FoundCheckpoint found = checkpoint::open(path);
  const fs::path run = without_last_slash(fs::absolute(found.folder)).parent_path();
  const std::string ema = how.is_ema ? "-ema" : "";
  const fs::path out = exports_of(how) / (export_name(run, found) + ema);
  if (!is_there(out)) {
    Arguments arguments;
    arguments.path = found.folder.string();
    arguments.second = out.string();
    arguments.writes_sums = false;
    arguments.is_ema = how.is_ema;
    run_export(arguments, registry);
  }
  return {
      out.string(),
      found.state.adapter ? found.state.model_folder : std::string(),
      {fmt::format("{}-{}{}", run.filename().string(), checkpoint::folder_name(found.step), ema),
       without_last_slash(found.folder).string()}};
}

/// What is no checkpoint is loaded as it is: said before anything is written.
void require_folder(const std::string& model) {
  std::error_code ignored;
  if (fs::is_directory(model, ignored)) return;
  core::fail(core::ErrorKind::input,
             {model, is_there(model) ? "is not a folder" : "is not there",
              "a model is a Hugging Face folder, a run or one of its step folders, or a deck",
              "Correct its name."});
}

/// Fills in what the deck says and the command line does not; returns its model and its run.
std::vector<std::string> of_deck(const comm::Communicator& world, const std::string& file,
                                 const train::Registry& registry, EvaluateArguments& how) {
  const train::Input input = train::read(world, file, {}, registry);
  if (how.tasks.empty()) {
    for (const fs::path& task : train::task_files(input.evaluate, input.deck_path))
      how.tasks.push_back(task.string());
    if (how.data.empty()) how.data = train::task_data(input.evaluate, input.deck_path).string();
    if (how.limit == 0) how.limit = input.evaluate.limit;
  }
  std::vector<std::string> models = {input.model_folder.string()};
  const bool was_trained =
      world.broadcast_text(world.is_root() && has_checkpoint(input.train.output) ? "yes" : "") ==
      "yes";
  if (was_trained) models.push_back(input.train.output);
  return models;
}

void require_one_base(const EvaluateArguments& how, const std::vector<Exported>& all) {
  for (const Exported& one : all) {
    std::error_code ignored;
    if (one.base.empty() || fs::equivalent(one.base, how.models.front(), ignored)) continue;
    core::fail(
        core::ErrorKind::command_line,
        {"finetune evaluate", fmt::format("{} is an adapter on {}", one.names.path, one.base),
         "adapters are put on the first model, " + how.models.front(),
         fmt::format("Name {} first.", one.base)});
  }
}

/// {"models", "adapters", "checkpoints"} of what is named: what is a run is exported.
core::Json look_into(const std::vector<std::string>& named, const EvaluateArguments& how,
                     const train::Registry& registry) {
  core::Json models = core::Json::array(), adapters = core::Json::array(),
             checkpoints = core::Json::object();
  std::vector<Exported> all;
  for (const std::string& model : named) {
    if (!is_run(model) && !is_checkpoint(model)) {
      models.push_back(model);
      continue;
    }
    const Exported& one = all.emplace_back(exported(model, how, registry));
    checkpoints[one.folder] = {one.names.name, one.names.path};
    if (one.base.empty()) {
      models.push_back(one.folder);
      continue;
    }
    if (models.empty()) models.push_back(one.base);
    adapters.push_back(one.folder);
  }
  EvaluateArguments looked = how;
  looked.models = models.get<std::vector<std::string>>();
  require_one_base(looked, all);
  return {{"models", models}, {"adapters", adapters}, {"checkpoints", checkpoints}};
}

}  // namespace

EvaluateInputs resolved(const comm::Communicator& world, EvaluateArguments how,
                        const train::Registry& registry) {
  std::vector<std::string> named;
  for (const std::string& model : std::exchange(how.models, {})) {
    if (model.ends_with(".toml")) {
      const auto of = of_deck(world, model, registry, how);
      named.insert(named.end(), of.begin(), of.end());
    } else {
      named.push_back(model);
    }
  }
  comm::agree_all(world, [&] {
    if (how.tasks.empty())
      core::fail(core::ErrorKind::command_line,
                 {"finetune evaluate", "names no task", "a model is asked the questions of tasks",
                  "Name files by --tasks, or in the deck by evaluate.tasks."});
  });
  EvaluateInputs inputs;
  // Of all ranks the root alone looks into runs, and writes.
  const std::string text = world.broadcast_text(comm::agree(world, [&] {
    if (!world.is_root()) return std::string();
    for (const std::string& model : named)
      require_folder(model);
    inputs.lock.emplace(locked_folder(how.output));
    return look_into(named, how, registry).dump();
  }));
  const core::Json looked = core::Json::parse(text);
  how.models = looked.at("models").get<std::vector<std::string>>();
  for (const core::Json& adapter : looked.at("adapters"))
    how.adapters.push_back(adapter.get<std::string>());
  for (const auto& [folder, names] : looked.at("checkpoints").items())
    inputs.checkpoints[folder] = {names.at(0).get<std::string>(), names.at(1).get<std::string>()};
  inputs.how = std::move(how);
  return inputs;
}

void remove_exports(const EvaluateArguments& how) {
  // Nothing else: the folder may hold more.
  std::error_code ignored;
  for (const auto* folders : {&how.models, &how.adapters})
    for (const std::string& folder : *folders)
      if (fs::path(folder).parent_path() == exports_of(how)) fs::remove_all(folder, ignored);
  fs::remove(exports_of(how), ignored);  // if it is empty
}

}  // namespace finetune::app
