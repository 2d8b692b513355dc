// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load/find.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/format/detail/candidate.hpp"
#include "checkpoint/format/detail/folder.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/load/branch.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "core/text.hpp"

namespace finetune::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* remedy = "Remove this checkpoint folder or restore it from a copy.";

Candidate check_folder(const fs::path& folder) {
  Candidate candidate = read_candidate(folder);
  check_file_sizes(parse(candidate));
  return candidate;
}

[[noreturn]] void fail_none_good(const fs::path& root, std::size_t count) {
  core::fail(
      core::ErrorKind::input,
      {root.string(),
       count == 1 ? std::string("the only checkpoint in it cannot be used")
                  : fmt::format("none of the {} checkpoints in it can be used", count),
       "the warnings above say why",
       "Restore one from a copy, or set checkpoint.resume = \"never\" to start from scratch."});
}

/// Whether only this user's own checkpoints count: to go on from, not to look at.
enum class Whose { own, anybodys };

std::optional<Candidate> newest(const fs::path& root, std::int64_t before_step, Whose whose) {
  const Branch branch = read_branch(root);
  if (whose == Whose::anybodys) tell_others(root, branch);
  for (const std::int64_t step : branch.steps) {
    if (step >= before_step) continue;
    try {
      if (whose == Whose::own) require_own(root / folder_name(step));
      return check_folder(root / folder_name(step));
    } catch (const core::Error& error) {
      log::warn(fmt::format("{} is skipped: {}", folder_name(step), error.what()));
    }
  }
  if (branch.steps.empty()) return std::nullopt;
  if (whose == Whose::own) tell_others(root, branch);
  fail_none_good(root, branch.steps.size());
}

std::vector<std::string> names_of(const std::vector<std::int64_t>& steps) {
  std::vector<std::string> names;
  for (const std::int64_t step : steps)
    names.push_back(folder_name(step));
  return names;
}

std::optional<Candidate> choose(const fs::path& root, const std::string& resume,
                                std::int64_t before_step) {
  if (resume == "auto") return newest(root, before_step, Whose::own);
  if (resume == "never") return std::nullopt;
  if (!step_of(resume)) {
    core::fail(core::ErrorKind::input,
               {"checkpoint.resume",
                fmt::format("\"{}\" is not a checkpoint's name", core::printable(resume)),
                "they are called step-0000000200 and so on",
                "Use \"auto\", \"never\" or the name of a folder."});
  }
  const std::vector<std::int64_t> steps = list_steps(root);
  if (std::ranges::find(steps, *step_of(resume)) == steps.end()) {
    const std::string others = describe_others(read_branch(root));
    core::fail(
        core::ErrorKind::input,
        {(root / resume).string(), "there is no such checkpoint",
         (steps.empty() ? std::string("there is none")
                        : fmt::format("there are {}", fmt::join(names_of(steps), ", "))) +
             (others.empty() ? "" : "; other branches: " + others),
         "Name one that lies there (checkpoint.resume); another branch is continued in its own "
         "folder (train.output)."});
  }
  require_own(root / resume);
  return check_folder(root / resume);
}

}  // namespace

Candidate read_candidate(const fs::path& folder) {
  Candidate candidate{folder, {}, {}};
  candidate.manifest_text = read_regular_file(folder / manifest_name, largest_manifest_bytes);
  candidate.state_text = read_regular_file(folder / state_name, largest_state_bytes);
  return candidate;
}

std::optional<Line> saved_by(const fs::path& folder) {
  // A manifest of many tensors is large, and what lies in a folder many checkpoints.
  constexpr std::int64_t beginning_bytes = 4096;
  try {
    const std::string state = read_regular_file(folder / state_name, largest_state_bytes);
    const std::int64_t bytes =
        std::min(regular_file_bytes(folder / manifest_name), beginning_bytes);
    std::string beginning(static_cast<std::size_t>(bytes), '\0');
    core::File(folder / manifest_name, core::File::Mode::read_no_link, core::ErrorKind::input)
        .read_at(0, std::as_writable_bytes(std::span(beginning)));
    if (beginning.find(core::fingerprint(state)) == std::string::npos) return std::nullopt;
    return RunState::from_json(core::parse_json(state, (folder / state_name).string())).line();
  } catch (const core::Error&) {
    return std::nullopt;
  }
}

FoundCheckpoint parse(const Candidate& candidate) {
  const fs::path& folder = candidate.folder;
  FoundCheckpoint found;
  found.folder = folder;
  found.manifest = parse_manifest(candidate.manifest_text, (folder / manifest_name).string());
  found.step = found.manifest.step;
  if (step_of(folder.filename().string()) != found.step) {
    core::fail(core::ErrorKind::input,
               {folder.string(), fmt::format("its manifest is of step {}", found.step),
                "a checkpoint's folder is named after its step", "Give it its name back."});
  }
  const std::string state_path = (folder / state_name).string();
  if (std::ssize(candidate.state_text) != found.manifest.state_bytes ||
      core::fingerprint(candidate.state_text) != found.manifest.state_fingerprint) {
    core::fail(core::ErrorKind::input, {state_path, "its fingerprint is not the manifest's",
                                        "the file is damaged or of another checkpoint", remedy});
  }
  const core::Json state = core::parse_json(candidate.state_text, state_path);
  if (!state.is_object() && !state.is_null()) {
    core::fail(core::ErrorKind::input,
               {state_path, "holds no object", "it is not what this program writes", remedy});
  }
  found.state = RunState::from_json(state);
  return found;
}

void check_file_sizes(const FoundCheckpoint& found) {
  for (const FileEntry& file : found.manifest.files) {
    const fs::path path = found.folder / file.name;
    const std::int64_t size = regular_file_bytes(path);
    if (size == file.size_bytes) continue;
    core::fail(core::ErrorKind::input,
               {path.string(), fmt::format("has {} bytes", size),
                fmt::format("the manifest says {}", file.size_bytes), remedy});
  }
}

core::Message no_checkpoint_in(const fs::path& path) {
  return {path.string(), "there is no checkpoint",
          "neither a folder step-NNNNNNNNNN nor a MANIFEST.json is there",
          "Name a checkpoint folder or the folder that holds them."};
}

std::optional<FoundCheckpoint> find(const comm::Communicator& world, const fs::path& root,
                                    const std::string& resume, std::int64_t before_step) {
  core::fault::hit("load.manifest", root.native());
  auto chosen = comm::agree(world, [&]() -> std::optional<Candidate> {
    return world.is_root() ? choose(root, resume, before_step) : std::nullopt;
  });
  if (world.all_reduce(std::int64_t{chosen.has_value()}, comm::Reduce::max) == 0)
    return std::nullopt;
  if (!chosen) chosen.emplace();
  const std::string name = world.broadcast_text(chosen->folder.filename().string());
  Candidate candidate{root / name, world.broadcast_text(std::move(chosen->manifest_text)),
                      world.broadcast_text(std::move(chosen->state_text))};
  return comm::agree(world, [&] { return parse(candidate); });
}

FoundCheckpoint open(const fs::path& path) {
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  std::error_code ignored;
  if (step_of(clean.filename().string()) || fs::exists(clean / manifest_name, ignored))
    return parse(check_folder(clean));
  auto chosen = newest(clean, any_step, Whose::anybodys);
  if (!chosen) {
    core::fail(core::ErrorKind::input, no_checkpoint_in(clean));
  }
  return parse(*chosen);
}

}  // namespace finetune::checkpoint
