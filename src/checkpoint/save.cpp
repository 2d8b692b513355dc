// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/candidate.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/hdf5.hpp"
#include "checkpoint/payload.hpp"
#include "checkpoint/records.hpp"
#include "comm/agree.hpp"
#include "core/build_info.hpp"
#include "core/clock.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/text.hpp"

namespace finetune::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The ranks that share one file. Its root makes the skeleton.
struct Group {
  comm::Communicator ranks;
  std::string file_name;
};

/// What a rank holds between the skeleton and the manifest.
struct PendingSave {
  fs::path folder;
  std::optional<FileEntry> file;  ///< on the group's root
  PayloadJob job;
  std::vector<std::size_t> stored;  ///< the slices that the job's payloads belong to
};

void check_arguments(std::int64_t step, std::span<const StoredSlice> slices,
                     const SaveOptions& options) {
  core::check(step >= 0 && step <= largest_step, "the step of a checkpoint has ten digits");
  core::check(options.block_bytes >= smallest_block_bytes &&
                  options.block_bytes <= largest_block_bytes && options.block_bytes % 8 == 0,
              "the block size of a checkpoint is between 64 bytes and 64 MiB");
  for (const StoredSlice& stored : slices) {
    const core::TensorSlice& slice = stored.slice;
    core::check(is_kind(stored.kind) && is_tensor_name(slice.name),
                "names in a checkpoint are those of layout.hpp");
    core::check(slice.offset >= 0 && slice.count >= 0 &&
                    slice.offset + slice.count <= core::num_elements(slice.shape),
                "a slice lies inside its tensor");
    core::check(slice.count == 0 || stored.data != nullptr, "a slice has data");
  }
}

std::int64_t total_bytes(std::span<const StoredSlice> slices) {
  std::int64_t total = 0;
  for (const StoredSlice& stored : slices)
    total += stored.slice.size_bytes();
  return total;
}

/// Better now than after writing most of it. Quotas are not seen here; the allocation finds them.
void require_space(const fs::path& folder, std::int64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= static_cast<std::uintmax_t>(bytes)) return;
  core::fail(core::ErrorKind::io,
             {folder.parent_path().string(),
              fmt::format("a checkpoint needs {}", core::human_bytes(bytes)),
              fmt::format("the file system has {} free",
                          core::human_bytes(static_cast<std::int64_t>(space.available))),
              "Free some space or lower checkpoint.save_total_limit."});
}

/// Takes the space of the whole file, so that a full disk is noticed before the data are written.
void allocate(const core::File& file, std::int64_t bytes) {
  bool is_done = ::ftruncate(file.descriptor(), bytes) == 0;
  if (is_done && bytes > 0) is_done = ::fallocate(file.descriptor(), 0, 0, bytes) == 0;
  // Some file systems cannot take space in advance; the writes will tell there.
  if (is_done || errno == EOPNOTSUPP || errno == ENOSYS) return;
  core::fail(core::ErrorKind::io,
             {file.path().string(), fmt::format("{} cannot be allocated", core::human_bytes(bytes)),
              core::system_reason(), "Free some space or lower checkpoint.save_total_limit."});
}

void write_skeleton(const fs::path& path, const Skeleton& skeleton) {
  core::File file(path, core::File::Mode::create_new, core::ErrorKind::create);
  ::fchmod(file.descriptor(), owner_only_file);
  allocate(file, skeleton.size_bytes);
  for (const auto& [position, bytes] : skeleton.metadata)
    file.write_at(position, bytes);
  file.close();  // synced by whoever writes the data
}

FileEntry make_file(const fs::path& path, std::span<const Dataset> datasets,
                    std::vector<std::int64_t>& positions) {
  Skeleton skeleton = make_skeleton(datasets);
  write_skeleton(path, skeleton);
  std::vector<ByteRange> ranges;
  for (std::size_t i = 0; i < datasets.size(); ++i) {
    const std::int64_t begin = skeleton.positions[i];
    ranges.push_back({begin, begin + datasets[i].slice.size_bytes()});
  }
  positions = std::move(skeleton.positions);
  const std::uint32_t crc = crc32c_outside(path, skeleton.size_bytes, std::move(ranges));
  return {path.filename(), skeleton.size_bytes, crc};
}

/// Makes the file of each group and tells every rank where its slices go.
PendingSave prepare(const comm::Communicator& world, const Group& group, const fs::path& folder,
                    std::span<const StoredSlice> slices, std::int64_t block_bytes) {
  PendingSave pending;
  pending.folder = folder;
  const GroupDatasets all = gather_datasets(group.ranks, slices);
  std::vector<std::int64_t> positions(all.datasets.size());
  const fs::path path = folder / group.file_name;
  comm::agree(world, [&] {
    if (group.ranks.is_root()) pending.file = make_file(path, all.datasets, positions);
  });
  group.ranks.broadcast(std::as_writable_bytes(std::span(positions)));

  pending.job = {path, block_bytes, {}};
  std::size_t next = all.first_own;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const core::TensorSlice& slice = slices[i].slice;
    if (slice.count == 0) continue;
    pending.job.payloads.push_back(
        {positions[next++], {slices[i].data, static_cast<std::size_t>(slice.size_bytes())}});
    pending.stored.push_back(i);
  }
  return pending;
}

std::vector<SliceRecord> slice_records(const PendingSave& pending, Checksums checksums,
                                       std::span<const StoredSlice> slices) {
  std::vector<SliceRecord> records;
  for (std::size_t i = 0; i < pending.stored.size(); ++i) {
    const StoredSlice& stored = slices[pending.stored[i]];
    records.push_back(
        {stored.kind, stored.slice, pending.job.payloads[i].position, std::move(checksums[i])});
  }
  for (const StoredSlice& stored : slices) {
    if (stored.slice.count == 0) records.push_back({stored.kind, stored.slice, 0, {}});
  }
  return records;
}

/// What the root sees of the other nodes' files. A folder that each node has for itself ends here.
void require_files(const fs::path& folder, const std::vector<FileEntry>& files) {
  for (const FileEntry& file : files) {
    std::error_code error;
    const auto size = fs::file_size(folder / file.name, error);
    if (!error && size == static_cast<std::uintmax_t>(file.size_bytes)) continue;
    core::fail(core::ErrorKind::io,
               {(folder / file.name).string(), "the first rank does not see this file as written",
                error ? error.message() : "its size differs",
                "Use a folder on a file system that all nodes share."});
  }
}

void write_manifest(Manifest manifest, const fs::path& folder, const std::string& state) {
  manifest.created_by = core::build_stamp();
  manifest.state_bytes = std::ssize(state);
  manifest.state_fingerprint = core::fingerprint(state);
  require_files(folder, manifest.files);
  validate(manifest, "the slices to be saved", core::ErrorKind::bug);
  const std::string text = to_text(manifest);
  core::check(
      std::ssize(text) <= largest_manifest_bytes && std::ssize(state) <= largest_state_bytes,
      "manifest and state stay below the sizes that are read");
  write_new_file(folder / state_name, state);
  write_manifest_file(folder, text);
}

Group make_group(const comm::Communicator& world, const comm::Communicator& node, int node_index,
                 Files files) {
  if (files == Files::rank) return {comm::Communicator(), file_name(files, world.rank())};
  return {node, file_name(files, node_index)};
}

/// Everything after the temporary folder exists.
void fill(const comm::Communicator& world, const Group& group, const fs::path& folder,
          Manifest header, const core::Json& state, std::span<const StoredSlice> slices) {
  PendingSave pending = prepare(world, group, folder, slices, header.block_bytes);
  Checksums checksums = comm::agree(world, [&] { return write_payload(pending.job); });
  const std::string record = to_record(pending.file, group.file_name,
                                       slice_records(pending, std::move(checksums), slices));
  const auto records = world.all_gather_text(record);
  comm::agree(world, [&] {
    if (!world.is_root()) return;
    add_records(header, records);
    write_manifest(std::move(header), folder, state.dump(1));
    publish(folder, folder.parent_path(), header.step);
  });
}

}  // namespace

SaveReport save(const comm::Communicator& world, const comm::Communicator& node, int node_index,
                const fs::path& root, std::int64_t step, const core::Json& state,
                std::span<const StoredSlice> slices, const SaveOptions& options) {
  const core::Stopwatch watch;
  comm::agree(world, [&] { check_arguments(step, slices, options); });
  SaveReport report;
  report.folder = root / folder_name(step);
  report.payload_bytes = world.all_reduce(total_bytes(slices), comm::Reduce::sum);

  const std::string name = world.broadcast_text(comm::agree(world, [&]() -> std::string {
    return world.is_root() ? make_temporary_folder(root, step).filename().string() : "";
  }));
  const fs::path folder = root / name;
  Manifest header;
  header.step = step;
  header.world_size = world.size();
  header.block_bytes = options.block_bytes;
  try {
    comm::agree(world, [&] {
      if (world.is_root()) require_space(folder, report.payload_bytes);
    });
    fill(world, make_group(world, node, node_index, options.files), folder, header, state, slices);
  } catch (const comm::AgreedError&) {
    if (world.is_root()) remove_quietly(folder);
    throw;
  }
  report.total_s = watch.seconds();
  report.blocked_s = report.total_s;
  return report;
}

}  // namespace finetune::checkpoint
