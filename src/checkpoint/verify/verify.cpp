// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/verify/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "checkpoint/format/detail/candidate.hpp"
#include "checkpoint/format/detail/folder.hpp"
#include "checkpoint/format/detail/overlap.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/load/branch.hpp"
#include "checkpoint/verify/detail/scan.hpp"
#include "core/error.hpp"

namespace finetune::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_problems = 10'000;

/// Where element `element` of `tensor` lies: the path of the file and the name of the block.
std::pair<std::string, std::string> place_of(const FoundCheckpoint& found, std::int64_t tensor,
                                             std::int64_t element) {
  const Manifest& manifest = found.manifest;
  const TensorEntry& entry = manifest.tensors[static_cast<std::size_t>(tensor)];
  for (const BoxEntry& box : manifest.boxes_of(tensor)) {
    const Overlap overlap(box.box, core::whole_box(entry.shape));
    const std::int64_t in_box = overlap.before_wanted(element);
    if (in_box == overlap.count() || overlap.wanted(in_box) != element) continue;
    for (const Extent& extent : manifest.extents_of(box)) {
      if (in_box >= extent.offset + extent.count) continue;
      const std::int64_t byte = (in_box - extent.offset) * core::size_bytes(entry.dtype);
      return {path_of(found, extent.file).string(),
              fmt::format("block {} of {} {} from element {} on", byte / manifest.block_bytes,
                          entry.kind, entry.name, manifest.first_element(extent))};
    }
  }
  core::check(false, "every element lies in an extent");
  return {};
}

/// Whose the checkpoint of `step` is; empty: of the branch itself.
std::string other_branch_of(const Branch& branch, std::int64_t step) {
  if (std::ranges::find(branch.steps, step) != branch.steps.end()) return "";
  for (const OtherBranch& other : branch.others)
    if (!other.is_folder && std::ranges::find(other.steps, step) != other.steps.end())
      return other.where;
  return "";
}

class Verifier {
 public:
  Verifier(const fs::path& folder, const std::vector<std::string>& unsigned_kinds,
           Verification& result)
      : unsigned_kinds_(unsigned_kinds), result_(result) {
    report_.folder = folder;
    report_.step = step_of(folder.filename().string()).value_or(0);
  }

  VerifiedCheckpoint run() {
    attempt([&] {
      const FoundCheckpoint found = parse(read_candidate(report_.folder));
      describe(found);
      data(found);
    });
    if (report_.num_problems > most_problems) {
      result_.problems.push_back(core::to_string(
          {report_.folder.string(),
           fmt::format("{} more problems", report_.num_problems - most_problems), "", ""}));
    }
    return std::move(report_);
  }

 private:
  void problem(std::string text) {
    if (++report_.num_problems <= most_problems) result_.problems.push_back(std::move(text));
  }

  template <typename F>
  bool attempt(F&& f) {
    try {
      f();
      return true;
    } catch (const core::Error& error) {
      problem(error.what());
      return false;
    }
  }

  /// What needs no look at the data.
  void describe(const FoundCheckpoint& found) {
    report_.bytes = 0;
    for (const FileEntry& file : found.manifest.files)
      report_.bytes += file.size_bytes;
    result_.num_tensors += std::ssize(found.manifest.tensors);
    report_.validation_loss = found.state.validation_loss;
    const auto score = found.state.measured();
    if (score && score->name != checkpoint::validation_loss_name) report_.score = score;
    for (const TensorEntry& tensor : found.manifest.tensors) {
      if (report_.kinds.empty() || report_.kinds.back().kind != tensor.kind)
        report_.kinds.push_back({tensor.kind});
      KindSummary& kind = report_.kinds.back();
      ++kind.num_tensors;
      kind.bytes += tensor.num_elements() * core::size_bytes(tensor.dtype);
    }
  }

  void data(const FoundCheckpoint& found) {
    std::vector<std::int64_t> files;
    for (std::int64_t file = 0; file < std::ssize(found.manifest.files); ++file)
      if (attempt([&] { check_file_size(found, file); })) files.push_back(file);
    ScanReport report = scan(found, files, unsigned_kinds_);
    for (std::string& text : report.problems)
      problem(std::move(text));
    result_.bytes += report.bytes;
    judge(found, report.tensors);
  }

  static void check_file_size(const FoundCheckpoint& found, std::int64_t file) {
    const fs::path path = path_of(found, file);
    const std::int64_t expected = found.manifest.files[static_cast<std::size_t>(file)].size_bytes;
    const std::int64_t bytes = regular_file_bytes(path);
    if (bytes == expected) return;
    core::fail(core::ErrorKind::input,
               {path.string(), fmt::format("has {} bytes", bytes),
                fmt::format("the manifest says {}", expected), "Restore it from a copy."});
  }

  /// Adds up the kinds and names tensors with values that should not be.
  void judge(const FoundCheckpoint& found, const std::vector<ValueSummary>& tensors) {
    auto kind = report_.kinds.begin();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      while (kind->kind != found.manifest.tensors[i].kind)
        ++kind;
      kind->norm += tensors[i].sum_of_squares;
      const auto tensor = static_cast<std::int64_t>(i);
      outliers(found, tensor, tensors[i].not_finite, "not finite",
               "training does not recover from such values");
      outliers(found, tensor, tensors[i].negative, "negative", "a run never has such values");
    }
    for (KindSummary& each : report_.kinds)
      each.norm = std::sqrt(each.norm);
  }

  void outliers(const FoundCheckpoint& found, std::int64_t tensor, const Outliers& outliers,
                const char* what, const char* why) {
    if (outliers.count == 0) return;
    const auto [path, block] = place_of(found, tensor, outliers.first);
    const std::string others =
        outliers.count == 1 ? ""
                            : fmt::format(", the first of {} that are {}", outliers.count, what);
    problem(core::to_string(
        {path,
         fmt::format("{} holds {} as element {}{}", block, outliers.value, outliers.first, others),
         why, "Continue from an older checkpoint."}));
  }

  const std::vector<std::string>& unsigned_kinds_;
  Verification& result_;
  VerifiedCheckpoint report_;
};

}  // namespace

Verification verify(const fs::path& path, const std::vector<std::string>& unsigned_kinds) {
  Verification result;
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  std::error_code ignored;
  if (step_of(clean.filename().string()) || fs::exists(clean / manifest_name, ignored)) {
    result.checkpoints.push_back(Verifier(clean, unsigned_kinds, result).run());
    return result;
  }
  try {
    const Branch branch = read_branch(clean);
    result.other_branches = describe_others(branch);
    for (const std::int64_t step : list_steps(clean)) {
      result.checkpoints.push_back(
          Verifier(clean / folder_name(step), unsigned_kinds, result).run());
      result.checkpoints.back().other_branch = other_branch_of(branch, step);
    }
  } catch (const core::Error& error) {
    result.problems.emplace_back(error.what());
  }
  if (result.checkpoints.empty() && result.problems.empty())
    result.problems.push_back(core::to_string(no_checkpoint_in(clean)));
  return result;
}

}  // namespace finetune::checkpoint
