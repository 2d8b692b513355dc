// SPDX-License-Identifier: Apache-2.0
#include "train/run/usable.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <system_error>

#include "base/initial_weights.hpp"
#include "checkpoint/load/branch.hpp"
#include "checkpoint/run_folder.hpp"
#include "comm/activity.hpp"
#include "comm/agree.hpp"
#include "comm/watch/hang.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "data/text/detect_format.hpp"
#include "tasks/task_set.hpp"
#include "tokenizer/tokenizer.hpp"
#include "train/corpus/corpus.hpp"
#include "train/corpus/sources.hpp"
#include "weights/model_files.hpp"

namespace finetune::train {
namespace {

namespace fs = std::filesystem;

/// The root looks at files, and everybody hears of it.
void look(const comm::Communicator& world, core::Problems& problems,
          const std::function<void()>& f) {
  const comm::Activity::Work work(world.activity(), comm::reading_files, "model and data");
  problems.collect([&] {
    comm::agree_all(world, [&] {
      if (world.is_root()) f();
    });
  });
}

void require_weights(const Input& input, bool is_known) {
  const auto files = weights::ModelFiles::open(input.model_folder);
  // A model with new tokens is another one than its files hold, until it is written.
  if (is_known && !input.model.new_tokens.any())
    base::require_same_tensors(files, input.architecture, input.parameters);
}

/// A run that goes on and trains all weights does not read those that it began with.
bool has_all_in_checkpoints(const Input& input, bool is_known) {
  std::error_code ignored;
  return is_known && std::ranges::all_of(input.parameters.rows, &model::Parameter::trainable) &&
         fs::is_directory(input.train.output, ignored) &&
         checkpoint::has_checkpoints(input.train.output) &&
         !checkpoint::begins_anew(input.train.output, input.checkpoint.resume);
}

/// The folder itself is tried out by whoever takes it; here it is seen whether it can be made.
void require_output(const fs::path& output) {
  std::error_code error;
  if (fs::exists(output, error) && !fs::is_directory(output, error))
    core::fail(core::ErrorKind::create, {output.string(), "is not a folder", "checkpoints need one",
                                         "Name a folder of your own (train.output)."});
  fs::path above = fs::absolute(output, error).lexically_normal();
  while (!fs::exists(above, error) && above.has_relative_path())
    above = above.parent_path();
  const bool is_folder = fs::is_directory(above, error);
  if (is_folder && ::access(above.c_str(), W_OK | X_OK) == 0) return;
  if (!is_folder) errno = ENOTDIR;
  const std::string reason = core::system_reason();
  const bool is_there = fs::exists(output, error);
  core::fail(core::ErrorKind::create,
             {output.string(), is_there ? "cannot be written to" : "cannot be created", reason,
              "Set train.output to a folder you may write to."});
}

/// Files of a few thousand questions at most, which are read again once the model is there.
void require_tasks(const Input& input) {
  (void)tasks::read_tasks(task_files(input.evaluate, input.deck_path),
                          task_data(input.evaluate, input.deck_path), input.evaluate.limit,
                          input.deck_path.string() + ": evaluate.tasks");
}

bool are_surely_tokens(const data::DataSettings& settings, const Registry& registry) {
  for (std::size_t i = 0; i < settings.paths.size(); ++i) {
    const std::string& name = settings.format_of(i);
    if (name == data::auto_format || !format_named(name, registry).has_tokens) return false;
  }
  return true;
}

void require_tokenizer(const Input& input, bool is_known) {
  const auto tokenizer = tokenizer::Tokenizer::load(input.model_folder);
  if (is_known) require_vocabulary(tokenizer, input.architecture);
  (void)tokenizer.eos_id();  // throws if there is none
}

}  // namespace

void check_weights(const comm::Communicator& world, const Input& input, bool is_known,
                   core::Problems& problems) {
  if (input.model.init == InitialWeights::random) return;
  look(world, problems, [&] {
    if (weights::has_weights(input.model_folder)) require_weights(input, is_known);
  });
}

AlsoCheck checks_of_start(const Registry& registry, bool is_of_a_run) {
  return [&registry, is_of_a_run](const comm::Communicator& world, const Input& input,
                                  bool is_known, core::Problems& problems) {
    std::error_code ignored;
    const bool has_folder = fs::exists(input.model_folder, ignored);
    if (input.model.init != InitialWeights::random) {
      look(world, problems, [&] {
        if (has_folder && !(is_of_a_run && has_all_in_checkpoints(input, is_known)))
          require_weights(input, is_known);
      });
    }
    const DataInput data = data_input(input);
    for (const DataPart part : {DataPart::training, DataPart::validation})
      for (std::size_t i = 0; i < num_paths(data, part); ++i)
        look(world, problems, [&] { require_path(data, part, i); });
    if (is_of_a_run && input.evaluate.has_tasks())
      look(world, problems, [&] { require_tasks(input); });
    if (is_of_a_run) look(world, problems, [&] { require_output(input.train.output); });
    if (problems.any() && !are_surely_tokens(input.data, registry))
      look(world, problems, [&] {
        if (has_folder) require_tokenizer(input, is_known);
      });
  };
}

}  // namespace finetune::train
