// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/detail/aside.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <system_error>

#include "checkpoint/format/detail/candidate.hpp"
#include "checkpoint/format/detail/folder.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/file.hpp"
#include "core/log.hpp"

namespace finetune::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view branch_prefix = "branch-";
constexpr const char* evaluations_name = "evaluations";  // of train.output, by step

/// The step that the run of `line` began from, -1 for the model.
std::int64_t last_step_before(const Line& line) {
  return line.lineage.parents.empty() ? -1 : line.lineage.parents.front().step;
}

bool is_of(const Line& line, const fs::path& folder, std::int64_t step) {
  if (const auto by = saved_by(folder)) return line.holds(by->run_id, step);
  return step <= last_step_before(line);
}

[[noreturn]] void fail(const fs::path& what, const fs::path& target, const std::string& reason) {
  core::fail(core::ErrorKind::create,
             {what.string(), "cannot be moved to " + target.string(), reason,
              "It is of a branch that is left: make room, or move it away yourself."});
}

void make_folder(const fs::path& folder, Access access) {
  if (::mkdir(folder.c_str(), folder_mode(access)) != 0) return;
  ::chmod(folder.c_str(), folder_mode(access));
  core::sync_folder(folder.parent_path());
}

/// A copy, whole or not at all: the next steps of the run that goes on are written behind the
/// original.
void copy_once(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (!fs::exists(from, error) || fs::exists(to, error)) return;
  const fs::path temporary = to.string() + ".tmp";
  fs::copy_file(from, temporary, fs::copy_options::overwrite_existing, error);
  // Whoever continues cuts the original.
  if (!error) core::File(temporary, core::File::Mode::write_existing, core::ErrorKind::io).sync();
  if (!error) fs::rename(temporary, to, error);
  if (error) fail(from, to, error.message());
}

/// Renames root/`what` to root/`name`/`what`: never onto another one, not even an empty folder.
void move(const fs::path& root, const std::string& name, const fs::path& what) {
  const fs::path from = root / what;
  const fs::path to = root / name / what;
  core::fault::hit("ckpt.aside", from.native());
  std::error_code error;
  if (fs::exists(fs::symlink_status(to, error))) fail(from, to, "there is one of this name");
  if (std::rename(from.c_str(), to.c_str()) != 0) fail(from, to, core::system_reason());
}

/// What was measured of checkpoints of steps that the line left: whether these are there or not.
void move_evaluations(const fs::path& root, const std::string& name, const Line& line,
                      Access access) {
  const fs::path folder = root / evaluations_name;
  std::error_code error;
  if (!fs::is_directory(folder, error)) return;
  for (const std::int64_t step : list_steps(folder)) {
    if (step <= last_step_before(line)) continue;
    make_folder(root / name / evaluations_name, access);
    move(root, name, fs::path(evaluations_name) / folder_name(step));
  }
}

void sync(const fs::path& root, const std::string& name) {
  core::sync_folder(root / name);
  core::sync_folder(root);
}

/// A folder in which only checkpoints of `run_id` are, and none of `step`.
bool takes(const fs::path& folder, const std::string& run_id, std::int64_t step) {
  const std::vector<std::int64_t> steps = list_steps(folder);
  return std::ranges::all_of(steps, [&](std::int64_t other) {
    const auto by = saved_by(folder / folder_name(other));
    return other != step && by && by->run_id == run_id;
  });
}

}  // namespace

bool is_branch_folder(std::string_view name) {
  if (!name.starts_with(branch_prefix) || name.size() > 20) return false;
  name.remove_prefix(branch_prefix.size());
  return !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

std::string new_branch_folder(const fs::path& root) {
  std::error_code error;
  for (int i = 1;; ++i) {
    std::string name = fmt::format("{}{}", branch_prefix, i);
    if (!fs::exists(fs::symlink_status(root / name, error))) return name;
  }
}

std::vector<std::int64_t> move_aside(const fs::path& root, const Line& line,
                                     const std::string& name, Access access) {
  std::vector<std::int64_t> steps = list_steps(root);
  std::erase_if(steps,
                [&](std::int64_t step) { return is_of(line, root / folder_name(step), step); });
  if (steps.empty()) return steps;
  make_folder(root / name, access);
  for (const char* file : {"metrics.jsonl", "input.resolved.toml"})
    copy_once(root / file, root / name / file);
  move_evaluations(root, name, line, access);
  for (const std::int64_t step : steps)
    move(root, name, folder_name(step));
  sync(root, name);
  core::fault::hit("ckpt.aside_done", root.native());
  return steps;
}

void move_aside_other(const fs::path& root, std::int64_t step, const Line& line, Access access) {
  const auto by = saved_by(root / folder_name(step));
  if (!by || by->run_id == line.run_id) return;
  std::string name;
  std::error_code error;
  for (int i = 1; name.empty(); ++i) {
    const std::string next = fmt::format("{}{}", branch_prefix, i);
    const bool is_free = !fs::exists(fs::symlink_status(root / next, error));
    if (is_free || (fs::is_directory(root / next, error) && takes(root / next, by->run_id, step)))
      name = next;
  }
  make_folder(root / name, access);
  move(root, name, folder_name(step));
  sync(root, name);
  log::info(fmt::format("{} of another branch is now {}", folder_name(step),
                        (root / name / folder_name(step)).string()));
}

}  // namespace finetune::checkpoint
