// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/run_folder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <system_error>

#include "checkpoint/format/detail/aside.hpp"
#include "checkpoint/format/detail/folder.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "core/text.hpp"

namespace finetune::checkpoint {
namespace {

namespace fs = std::filesystem;

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
  const auto note = read_note(root);
  return note ? note->choice : core::Json();
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
    if (auto note = read_note(root_)) {
      note_ = std::move(*note);
      return;
    }
  }
  note_.id = new_id();
}

Line RunFolder::continue_line(Line line) {
  if (line.run_id.empty()) line.run_id = new_id();
  note_.id = line.run_id;
  note_.lineage = line.lineage;
  return line;
}

Line RunFolder::begin_branch(Line line) {
  line.run_id = new_id();
  note_ = {.id = line.run_id,
           .choice = note_.choice,
           .lineage = line.lineage,
           .leaves_to = new_branch_folder(root_)};
  write();
  return line;
}

void RunFolder::leave_others() {
  if (note_.leaves_to.empty()) return;
  const Line line{note_.id, note_.lineage.value_or(Lineage())};
  const auto steps = move_aside(root_, line, note_.leaves_to, access_);
  if (!steps.empty()) {
    std::vector<std::string> names;
    for (const std::int64_t step : steps)
      names.push_back(folder_name(step));
    log::info(fmt::format("{} of the branch that is left: now in {}", fmt::join(names, ", "),
                          (root_ / note_.leaves_to).string()));
  }
  note_.leaves_to.clear();
  write();
}

void RunFolder::begin(std::int64_t step, const std::string& fingerprint, std::int64_t max_starts) {
  const bool is_same = step == note_.step && fingerprint == note_.fingerprint;
  if (is_same && max_starts > 0 && note_.starts >= max_starts) {
    core::fail(
        core::ErrorKind::no_progress,
        {root_.string(),
         fmt::format("{} starts from step {} have ended without a new checkpoint", note_.starts,
                     step),
         "another would most likely end in the same way",
         fmt::format("Look at what they printed; save more often (checkpoint.save_minutes), change "
                     "the deck, or remove {} to try again.",
                     (root_ / note_name).string())});
  }
  note_.starts = is_same ? note_.starts + 1 : 1;
  note_.step = step;
  note_.fingerprint = fingerprint;
  write();
}

void RunFolder::note_progress() {
  if (note_.starts == 0) return;
  note_.starts = 0;
  note_.step = -1;
  try {
    write();
  } catch (const core::Error& error) {
    log::warn(fmt::format("starts without progress are still counted: {}", error.what()));
  }
}

void RunFolder::write() const {
  write_note(root_, note_);
  ::chmod((root_ / note_name).c_str(), file_mode(access_));
}

}  // namespace finetune::checkpoint
