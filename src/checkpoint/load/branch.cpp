// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load/branch.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "checkpoint/format/detail/aside.hpp"
#include "checkpoint/format/detail/candidate.hpp"
#include "checkpoint/format/detail/folder.hpp"
#include "checkpoint/format/detail/note.hpp"
#include "checkpoint/format/layout.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"

namespace finetune::checkpoint {
namespace {

namespace fs = std::filesystem;

/// A checkpoint, and who saved it; nothing: that cannot be read.
struct Saved {
  std::int64_t step = 0;
  std::optional<Line> by;
};

std::vector<Saved> list_saved(const fs::path& root) {
  std::vector<Saved> all;
  for (const std::int64_t step : list_steps(root))
    all.push_back({step, saved_by(root / folder_name(step))});
  return all;
}

/// Of the newest checkpoint of the run `id`.
const Line* line_of(const std::vector<Saved>& all, const std::string& id) {
  const auto saved = std::ranges::find_if(
      all, [&](const Saved& each) { return each.by && each.by->run_id == id; });
  return saved == all.end() ? nullptr : &*saved->by;
}

/// Whether there are checkpoints of others, and none of the line.
bool are_all_strangers(const std::vector<Saved>& all, const Line& line) {
  bool is_any_known = false;
  for (const Saved& each : all) {
    if (each.by && line.holds(each.by->run_id, each.step)) return false;
    is_any_known = is_any_known || each.by;
  }
  return is_any_known;
}

Line last_line(const std::vector<Saved>& all) {
  const Line* last = nullptr;
  const auto place = [](const Line& line) { return std::tie(line.lineage.branch, line.run_id); };
  for (const Saved& saved : all)
    if (saved.by && (last == nullptr || place(*saved.by) > place(*last))) last = &*saved.by;
  return last == nullptr ? Line() : *last;
}

void choose_line(const std::optional<RunNote>& note, const std::vector<Saved>& all,
                 Branch& branch) {
  branch.line = last_line(all);
  if (!note) return;
  if (!note->lineage) {
    if (const Line* noted = line_of(all, note->id)) branch.line = *noted;
    return;
  }
  const Line noted{note->id, *note->lineage};
  branch.highest = std::max(branch.highest, noted.lineage.branch);
  // Strangers alone were put there by hand, to go on from: unless they are just being moved away.
  if (note->leaves_to.empty() && are_all_strangers(all, noted)) return;
  branch.is_begun = !noted.lineage.begun_by.empty();
  branch.line = noted;
}

std::vector<OtherBranch> branch_folders(const fs::path& root) {
  std::vector<std::pair<std::size_t, OtherBranch>> found;
  std::error_code error;
  for (fs::directory_iterator i(root, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    if (!is_branch_folder(name)) continue;
    std::error_code ignored;
    if (!i->is_directory(ignored)) continue;
    if (auto steps = list_steps(i->path()); !steps.empty())
      found.push_back({name.size(), {true, name, std::move(steps)}});
  }
  std::ranges::sort(found, {}, [](const auto& each) {
    return std::pair(each.first, each.second.where);  // branch-10 behind branch-9
  });
  std::vector<OtherBranch> all;
  for (auto& [size, other] : found)
    all.push_back(std::move(other));
  return all;
}

std::string list_names(const std::vector<std::int64_t>& steps) {
  constexpr std::size_t most_named = 5;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(steps.size(), most_named); ++i)
    names.push_back(folder_name(steps[i]));
  if (steps.size() > most_named)
    names.push_back(fmt::format("and {} older", steps.size() - most_named));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Branch read_branch(const fs::path& root) {
  const std::vector<Saved> all = list_saved(root);
  Branch branch;
  for (const Saved& saved : all)
    if (saved.by) branch.highest = std::max(branch.highest, saved.by->lineage.branch);
  choose_line(read_note(root), all, branch);
  std::map<std::string, std::vector<std::int64_t>> others;
  for (const Saved& saved : all) {
    if (!saved.by || branch.line.holds(saved.by->run_id, saved.step))
      branch.steps.push_back(saved.step);
    else
      others[saved.by->run_id].push_back(saved.step);
  }
  for (auto& [id, steps] : others) {
    std::string where = id.empty() ? "a run without an id" : "run " + core::printable(id);
    branch.others.push_back({false, std::move(where), std::move(steps)});
  }
  for (OtherBranch& folder : branch_folders(root))
    branch.others.push_back(std::move(folder));
  return branch;
}

fs::path note_path(const fs::path& root) {
  return root / note_name;
}

std::string describe_others(const Branch& branch) {
  std::vector<std::string> texts;
  for (const OtherBranch& other : branch.others)
    texts.push_back(fmt::format("{} ({})", other.where, list_names(other.steps)));
  return fmt::format("{}", fmt::join(texts, "; "));
}

void tell_others(const fs::path& root, const Branch& branch) {
  if (branch.others.empty()) return;
  log::info(
      fmt::format("other branches in {}, left alone: {}", root.string(), describe_others(branch)));
}

bool begins_anew(const fs::path& root, const std::string& resume) {
  if (without_number(resume) != "never") return false;
  const auto note = read_note(root);
  const bool is_noted =
      note && note->lineage && Line{note->id, *note->lineage}.was_begun_by(resume);
  return !is_noted && !read_branch(root).line.was_begun_by(resume);
}

}  // namespace finetune::checkpoint
