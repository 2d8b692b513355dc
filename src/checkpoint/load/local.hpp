#pragma once
// SPDX-License-Identifier: Apache-2.0
// The level of checkpoints on disks of the nodes: each node holds its own file and its neighbour's,
// and all of them the same manifest.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/load/find.hpp"
#include "comm/communicator.hpp"

namespace finetune::checkpoint {

/// Where a node keeps the local checkpoints of the run whose output folder is `output`: a folder in
/// `local_dir` with a name of its own for user, run and `host`, so that neither jobs nor nodes that
/// share a disk meet.
std::filesystem::path local_root(const std::filesystem::path& local_dir,
                                 const std::filesystem::path& output, const std::string& host);

/// Makes it where it is missing. Without MPI.
/// Throws: ErrorKind::create if it belongs to another user, is a link, or others may enter it.
void make_local_root(const std::filesystem::path& root);

/// Removes what other runs than `run_id` ("": all runs) have left there. Without MPI; problems are
/// warnings.
void remove_other_runs(const std::filesystem::path& root, const std::string& run_id);

/// Finds the newest checkpoint of a step below `before_step` and of the run `run_id` of which the
/// nodes together still have every file, wherever it was written. Says which incomplete ones it
/// skipped. The root of each `node` reads. Collective on `world`; errors of single nodes are
/// theirs alone: what they have does not count.
std::optional<FoundCheckpoint> find_local(const comm::Communicator& world,
                                          const comm::Communicator& node,
                                          const std::filesystem::path& root,
                                          const std::string& run_id, std::int64_t before_step);

}  // namespace finetune::checkpoint
