// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load/local.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "checkpoint/format/detail/candidate.hpp"
#include "checkpoint/format/detail/folder.hpp"
#include "checkpoint/format/layout.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"

namespace finetune::checkpoint {
namespace {

namespace fs = std::filesystem;

/// One checkpoint on one node.
struct Part {
  Candidate candidate;
  std::int64_t step = 0;
  std::string fingerprint;  ///< of manifest and state: parts of one checkpoint have the same
  std::string files;        ///< '1' for each file of the manifest that is here, else '0'
};

std::string files_present(const FoundCheckpoint& found) {
  std::string present;
  for (const FileEntry& file : found.manifest.files) {
    bool is_here = false;
    try {
      is_here = regular_file_bytes(found.folder / file.name) == file.size_bytes;
    } catch (const core::Error&) {
      // Another node has it.
    }
    present += is_here ? '1' : '0';
  }
  return present;
}

std::vector<Part> parts_here(const fs::path& root, const std::string& run_id,
                             std::int64_t before_step) {
  std::vector<Part> parts;
  std::error_code error;
  if (!fs::exists(root, error)) return parts;
  make_private_root(root);
  for (const std::int64_t step : list_steps(root)) {
    if (step >= before_step) continue;
    try {
      Part part;
      part.candidate = read_candidate(root / folder_name(step));
      const FoundCheckpoint found = parse(part.candidate);
      if (found.state.run_id.value_or("") != run_id) continue;
      part.step = step;
      part.fingerprint =
          core::fingerprint(part.candidate.manifest_text + part.candidate.state_text);
      part.files = files_present(found);
      parts.push_back(std::move(part));
    } catch (const core::Error& problem) {
      log::warn(fmt::format("the node-local {} is skipped: {}", folder_name(step), problem.what()));
    }
  }
  return parts;
}

/// A checkpoint as all nodes together have it.
struct Whole {
  std::string files;
  int rank = 0;  ///< the first that has its manifest
};

using SetKey = std::pair<std::int64_t, std::string>;  // step, fingerprint

std::map<SetKey, Whole, std::greater<>> put_together(const std::vector<std::string>& lists) {
  std::map<SetKey, Whole, std::greater<>> all;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    for (const core::Json& row : core::Json::from_cbor(lists[rank])) {
      const SetKey key(row[0].get<std::int64_t>(), row[1].get<std::string>());
      const auto files = row[2].get<std::string>();
      const auto [whole, is_new] = all.try_emplace(key, Whole{files, static_cast<int>(rank)});
      for (std::size_t i = 0; i < files.size() && !is_new; ++i) {
        if (files[i] == '1') whole->second.files[i] = '1';
      }
    }
  }
  return all;
}

std::string to_list(const std::vector<Part>& parts) {
  core::Json list = core::Json::array();
  for (const Part& part : parts)
    list.push_back({part.step, part.fingerprint, part.files});
  std::string bytes;
  core::Json::to_cbor(list, bytes);
  return bytes;
}

}  // namespace

fs::path local_root(const fs::path& local_dir, const fs::path& output, const std::string& host) {
  std::error_code error;
  const fs::path absolute = fs::absolute(output, error).lexically_normal();
  return local_dir / fmt::format("finetune-{}-{}-{}", ::geteuid(),
                                 core::fingerprint(absolute.native()).substr(0, 12), host);
}

void make_local_root(const fs::path& root) {
  make_private_root(root);
}

void remove_other_runs(const fs::path& root, const std::string& run_id) {
  std::vector<std::int64_t> steps;
  try {
    steps = list_steps(root);
  } catch (const core::Error& error) {
    log::warn(fmt::format("node-local checkpoints of earlier runs stay: {}", error.what()));
  }
  std::vector<std::string> removed;
  for (const std::int64_t step : steps) {
    try {
      const FoundCheckpoint found = parse(read_candidate(root / folder_name(step)));
      if (found.state.run_id.value_or("") == run_id) continue;
      remove_checkpoint(root, step);
      removed.push_back(folder_name(step));
    } catch (const core::Error& error) {
      log::warn(fmt::format("the node-local {} stays: {}", folder_name(step), error.what()));
    }
  }
  if (!removed.empty() && !run_id.empty())
    log::info(fmt::format("removed, as node-local checkpoints of another run: {}",
                          fmt::join(removed, ", ")));
}

std::optional<FoundCheckpoint> find_local(const comm::Communicator& world,
                                          const comm::Communicator& node, const fs::path& root,
                                          const std::string& run_id, std::int64_t before_step) {
  std::vector<Part> parts;
  try {
    if (node.is_root()) parts = parts_here(root, run_id, before_step);
  } catch (const core::Error& error) {
    log::warn(fmt::format("node-local checkpoints are skipped: {}", error.what()));
  }
  const auto all = put_together(world.all_gather_text(to_list(parts)));
  for (const auto& [key, whole] : all) {
    const auto& [step, fingerprint] = key;
    if (whole.files.find('0') != std::string::npos) {
      log::warn(
          fmt::format("the node-local {} is skipped: {} of its {} files are on none of "
                      "the nodes",
                      folder_name(step), std::ranges::count(whole.files, '0'), whole.files.size()));
      continue;
    }
    const auto own = std::ranges::find(parts, fingerprint, &Part::fingerprint);
    Candidate candidate = own != parts.end() ? own->candidate : Candidate{};
    candidate.folder = root / folder_name(step);
    candidate.manifest_text = world.broadcast_text(std::move(candidate.manifest_text), whole.rank);
    candidate.state_text = world.broadcast_text(std::move(candidate.state_text), whole.rank);
    const std::string files =
        node.broadcast_text(own != parts.end() ? own->files : std::string(whole.files.size(), '0'));
    FoundCheckpoint found = comm::agree(world, [&] { return parse(candidate); });
    for (const char file : files)
      found.files_here.push_back(file == '1');
    return found;
  }
  return std::nullopt;
}

}  // namespace finetune::checkpoint
