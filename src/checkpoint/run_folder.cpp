// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/run_folder.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <system_error>

#include "checkpoint/format/detail/folder.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "core/text.hpp"

namespace finetune::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* note_name = ".run.json";
constexpr std::int64_t largest_note_bytes = 4096;

fs::path made(const fs::path& root, Access access) {
  make_root(root, access);
  return root;
}

/// What only a run leaves in its folder.
bool is_of_a_run(std::string_view name) {
  return name == lock_name || name == note_name || name == "metrics.jsonl" ||
         name == "input.resolved.toml" || step_of(name).has_value();
}

std::string new_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

/// All that a save will do, with a file of a few bytes. Better to fail now than after hours.
void try_out(const fs::path& root, Access access) {
  const fs::path file = root / (".try." + new_id());
  const fs::path renamed = file.string() + ".renamed";
  try {
    write_new_file(file, "finetune", file_mode(access));
    std::error_code error;
    fs::rename(file, renamed, error);
    if (!error) fs::remove(renamed, error);
    if (error) {
      core::fail(core::ErrorKind::create, {root.string(), "files in it cannot be renamed",
                                           error.message(), "Set train.output to another folder."});
    }
    core::sync_folder(root);
  } catch (const core::Error& error) {
    remove_quietly(file);
    throw core::Error(core::ErrorKind::create, error.what());
  }
}

}  // namespace

core::Json noted_choice(const fs::path& root) {
  try {
    const std::string name = (root / note_name).string();
    return core::parse_json(read_regular_file(root / note_name, largest_note_bytes), name)
        .value("choice", core::Json());
  } catch (const std::exception&) {
    return {};
  }
}

bool has_checkpoints(const fs::path& root) {
  return !list_steps(root).empty();
}

std::vector<std::string> foreign_entries(const fs::path& root) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator i(root, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    if (is_of_a_run(name)) return {};
    // Schedulers and tests may put the job's own output there before it starts.
    // A model with new tokens is written before the run begins.
    if (!name.ends_with(".out") && !name.ends_with(".err") && !name.ends_with(".log") &&
        name != grown_model_name)
      names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

RunFolder::RunFolder(const fs::path& root, Access access)
    : root_(made(root, access)), access_(access), lock_((try_out(root, access), root), access) {
  std::error_code ignored;
  if (fs::exists(root_ / note_name, ignored)) {
    try {
      const core::Json note = core::parse_json(
          read_regular_file(root_ / note_name, largest_note_bytes), (root_ / note_name).string());
      run_id_ = note.at("id").get<std::string>();
      fingerprint_ = note.at("fingerprint").get<std::string>();
      step_ = note.at("step").get<std::int64_t>();
      starts_ = note.at("starts").get<std::int64_t>();
      choice_ = note.value("choice", core::Json());
      return;
    } catch (const std::exception&) {
      // A note that cannot be read is worth no more than none.
      starts_ = 0;
    }
  }
  run_id_ = new_id();
}

void RunFolder::set_run_id(const std::string& id) {
  run_id_ = id.empty() ? new_id() : id;
}

void RunFolder::begin(std::int64_t step, const std::string& fingerprint, std::int64_t max_starts) {
  const bool is_same = step == step_ && fingerprint == fingerprint_;
  if (is_same && max_starts > 0 && starts_ >= max_starts) {
    core::fail(
        core::ErrorKind::no_progress,
        {root_.string(),
         fmt::format("{} starts from step {} have ended without a new checkpoint", starts_, step),
         "another would most likely end in the same way",
         fmt::format("Look at what they printed; save more often (checkpoint.save_minutes), change "
                     "the deck, or remove {} to try again.",
                     (root_ / note_name).string())});
  }
  starts_ = is_same ? starts_ + 1 : 1;
  step_ = step;
  fingerprint_ = fingerprint;
  write();
}

void RunFolder::note_progress() {
  if (starts_ == 0) return;
  starts_ = 0;
  step_ = -1;
  try {
    write();
  } catch (const core::Error& error) {
    log::warn(fmt::format("starts without progress are still counted: {}", error.what()));
  }
}

void RunFolder::write() const {
  core::Json note = {
      {"id", run_id_}, {"fingerprint", fingerprint_}, {"step", step_}, {"starts", starts_}};
  if (!choice_.is_null()) note["choice"] = choice_;
  core::write_text_atomically(root_ / note_name, note.dump() + "\n");
  ::chmod((root_ / note_name).c_str(), file_mode(access_));
}

}  // namespace finetune::checkpoint
