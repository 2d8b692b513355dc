#pragma once
// SPDX-License-Identifier: Apache-2.0
// Saving: slices in memory become a checkpoint folder, whole or not at all, while the caller goes
// on with something else.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/format/detail/payload.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/retire.hpp"
#include "comm/communicator.hpp"
#include "core/clock.hpp"
#include "core/json.hpp"
#include "core/tensor_slice.hpp"

namespace finetune::checkpoint {

/// Elements of a logical tensor in this rank's memory, to be saved. Boxes of a tensor do not
/// overlap: slices of the same part of it are slices of the same box.
struct StoredSlice {
  std::string kind;  ///< "param", "exp_avg", ...: distinguishes the states of one tensor
  core::TensorSlice slice;
  const std::byte* data = nullptr;  ///< slice.size_bytes() bytes
};

/// Who writes what.
struct Writers {
  comm::Communicator world;
  comm::Communicator node;  ///< the ranks that share a file with Files::node
  int node_index = 0;       ///< the number of that file
  /// The rank on another node that keeps a copy of what this rank writes (its folder is on a disk
  /// of the node); nothing: no copy. Given on all ranks or on none.
  std::optional<int> partner = {};
};

struct SaveOptions {
  Level level = Level::shared;
  Files files = Files::node;
  Access access = Access::owner;
  Durability durability = {};
  /// Bytes a checksum covers, and so the least a reader reads; a multiple of 8.
  std::int64_t block_bytes = std::int64_t{1} << 20;
  /// What goes once the new checkpoint is there; nothing: all stay.
  std::optional<Retention> retention = {};
};

struct SaveReport {
  std::filesystem::path folder;
  std::int64_t step = 0;
  std::int64_t payload_bytes = 0;  ///< of all ranks
  double blocked_s = 0;            ///< of this rank's caller, which waited for calls of Saving
  double write_s = 0;              ///< of the slowest rank, synced
  double read_back_s = 0;          ///< the same
  double publish_s = 0;            ///< of this rank: manifest, renames, and older ones that went
  double total_s = 0;              ///< until the checkpoint counts

  /// What it would have taken alone: without the steps of training in between.
  double work_s() const { return blocked_s + write_s + read_back_s + publish_s; }
  double write_gb_per_s() const { return write_s > 0 ? 1e-9 * double(payload_bytes) / write_s : 0; }
};

/// One checkpoint on its way to `root`/step-NNNNNNNNNN. Data are written by a thread on every rank;
/// what ranks have to send each other is sent when they call `advance` together.
///
/// Whatever throws, every rank throws the same AgreedError (kind create or io with the reason; bug
/// for slices that overlap or leave something out), the temporary folder is gone and older
/// checkpoints are untouched. Destroying an unfinished one gives it up in the same way, except that
/// the temporary folder may stay until the next save removes it.
class Saving {
 public:
  /// Together the ranks pass every element of every tensor exactly once (replicas divide a tensor
  /// among them, or one of them passes it); a slice of no elements only says that the tensor
  /// exists. What slices point to stays as it is while `needs_data`. `state` is the root's; what
  /// the others pass is ignored.
  ///
  /// Collective on the world, on its main threads (HDF5).
  Saving(Writers writers, const std::filesystem::path& root, std::int64_t step,
         const core::Json& state, std::span<const StoredSlice> slices,
         const SaveOptions& options = {});
  ~Saving();
  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;

  /// Goes as far as is possible without waiting for the data; for the small things after them it
  /// waits a few milliseconds, which would else cost a step of training each. True once the
  /// checkpoint is on disk and will be found. Collective on the world.
  bool advance();

  /// Waits for the end. Collective on the world.
  const SaveReport& finish();

  /// Whether the data are still being read.
  bool needs_data() const;

  std::int64_t step() const { return report_.step; }
  const SaveReport& report() const { return report_; }

 private:
  struct Parts;
  void begin(const core::Json& state, std::span<const StoredSlice> slices);
  bool go_on();
  bool all_have_finished();
  void describe();
  void publish();
  void give_up();
  bool is_publisher() const;
  template <typename F>
  auto guarded(F&& f);

  Writers writers_;
  std::filesystem::path root_;
  SaveOptions options_;
  SaveReport report_;
  core::Stopwatch watch_;
  std::int64_t late_rank_ = -1;  ///< the last that had not finished when the ranks looked
  std::unique_ptr<Parts> parts_;
};

/// A whole save in one call. Collective on `world`. Throws: as Saving.
SaveReport save(const comm::Communicator& world, const comm::Communicator& node, int node_index,
                const std::filesystem::path& root, std::int64_t step, const core::Json& state,
                std::span<const StoredSlice> slices, const SaveOptions& options = {});

}  // namespace finetune::checkpoint
