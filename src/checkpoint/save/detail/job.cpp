// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save/detail/job.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/json.hpp"
#include "hdf5/skeleton.hpp"

namespace finetune::checkpoint {
namespace {

using core::Json;

/// The ranks that share one file. Its root lays it out.
struct Group {
  comm::Communicator ranks;
  std::string file_name;
};

Group make_group(const Writers& writers, Files files) {
  if (files == Files::rank) return {comm::Communicator(), file_name(files, writers.world.rank())};
  return {writers.node, file_name(files, writers.node_index)};
}

/// The parts of `pages` outside `ranges`, which are in order: what ranks write there at the same
/// time must stay.
std::map<std::int64_t, std::vector<std::byte>> outside(
    const std::map<std::int64_t, std::vector<std::byte>>& pages,
    const std::vector<ByteRange>& ranges) {
  std::map<std::int64_t, std::vector<std::byte>> result;
  for (const auto& [position, page] : pages) {
    const std::int64_t end = position + std::ssize(page);
    std::int64_t next = position;
    const auto keep_until = [&, position = position, &page = page](std::int64_t stop) {
      if (stop > next)
        result[next].assign(page.begin() + (next - position), page.begin() + (stop - position));
    };
    auto range = std::ranges::upper_bound(ranges, position, {}, &ByteRange::end);
    for (; range != ranges.end() && range->begin < end; ++range) {
      keep_until(range->begin);
      next = std::min(range->end, end);
    }
    keep_until(end);
  }
  return result;
}

/// A slice of a box that is not the whole tensor says so in its name and attributes.
hdf5::DatasetShape to_hdf5(const DatasetSlice& dataset) {
  const core::TensorSlice& slice = dataset.slice;
  const core::Box box = slice.box_or_whole();
  const bool is_whole = box == core::whole_box(slice.shape);
  const std::string begin = is_whole ? "" : fmt::format("{}+", fmt::join(box.begin, ","));
  using Integers = std::vector<std::int64_t>;
  hdf5::DatasetShape result{
      fmt::format("/{}/{}/{}{}", dataset.kind, slice.name, begin, slice.offset),
      slice.dtype,
      slice.count,
      {{"dtype", std::string(core::name(slice.dtype))},
       {"global_shape", slice.shape},
       {"offset", Integers{slice.offset}},
       {"count", Integers{slice.count}}}};
  if (!is_whole) {
    result.attributes.push_back({"box_begin", box.begin});
    result.attributes.push_back({"box_extent", box.extent});
  }
  return result;
}

void lay_out(std::span<const DatasetSlice> datasets, PayloadJob& job,
             std::vector<std::int64_t>& positions) {
  core::fault::hit("ckpt.skeleton", job.file.native());
  std::vector<hdf5::DatasetShape> described;
  std::ranges::transform(datasets, std::back_inserter(described), to_hdf5);
  hdf5::Skeleton skeleton = hdf5::make_skeleton(described);
  job.file_bytes = skeleton.size_bytes;
  std::vector<ByteRange> ranges;
  for (std::size_t i = 0; i < datasets.size(); ++i) {
    const std::int64_t begin = skeleton.positions[i];
    ranges.push_back({begin, begin + datasets[i].slice.size_bytes()});
  }
  std::ranges::sort(ranges, {}, &ByteRange::begin);
  job.metadata = outside(skeleton.metadata, ranges);
  job.slices_of_all = std::move(ranges);
  positions = std::move(skeleton.positions);
}

}  // namespace

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
    const core::Box box = slice.box_or_whole();
    core::check(core::is_inside(box, slice.shape) && slice.offset >= 0 && slice.count >= 0 &&
                    slice.count <= box.num_elements() - slice.offset,
                "a slice lies inside its tensor");
    core::check(slice.count == 0 || stored.data != nullptr, "a slice has data");
  }
}

RankJob make_job(const Writers& writers, const std::filesystem::path& folder,
                 std::span<const StoredSlice> slices, const SaveOptions& options) {
  const Group group = make_group(writers, options.files);
  RankJob job;
  job.payload.file = folder / group.file_name;
  job.payload.access = options.access;
  job.payload.block_bytes = options.block_bytes;
  job.payload.durability = options.durability;
  job.lays_out_file = group.ranks.is_root();
  const GroupDatasets all = gather_datasets(group.ranks, slices);
  std::vector<std::int64_t> positions(all.datasets.size());
  comm::agree(writers.world, [&] {
    if (job.lays_out_file) lay_out(all.datasets, job.payload, positions);
  });
  group.ranks.broadcast(std::as_writable_bytes(std::span(positions)));

  std::size_t next = all.first_own;
  for (const StoredSlice& stored : slices) {
    if (stored.slice.count == 0) {
      job.empty.push_back({stored.kind, stored.slice, 0, {}});
      continue;
    }
    const std::int64_t position = positions[next++];
    job.payload.payloads.push_back(
        {position, {stored.data, static_cast<std::size_t>(stored.slice.size_bytes())}});
    job.slices.push_back({stored.kind, stored.slice, position, {}});
  }
  return job;
}

std::vector<std::byte> pack(const PayloadJob& job) {
  Json pieces = Json::array();
  std::size_t bytes = 0;
  const auto add = [&](std::int64_t position, std::span<const std::byte> piece) {
    pieces.push_back({position, piece.size()});
    bytes += piece.size();
  };
  for (const auto& [position, page] : job.metadata)
    add(position, page);
  for (const Payload& payload : job.payloads)
    add(payload.position, payload.bytes);
  std::string head;
  Json::to_cbor(Json{{"file", job.file.filename().string()},
                     {"file_bytes", job.file_bytes},
                     {"pieces", std::move(pieces)}},
                head);
  const std::uint64_t size = head.size();
  std::vector<std::byte> message(sizeof(size) + head.size() + bytes);
  std::byte* next = message.data();
  const auto append = [&](std::span<const std::byte> piece) {
    next = std::ranges::copy(piece, next).out;
  };
  append(std::as_bytes(std::span(&size, 1)));
  append(std::as_bytes(std::span(head)));
  for (const auto& [position, page] : job.metadata)
    append(page);
  for (const Payload& payload : job.payloads)
    append(payload.bytes);
  return message;
}

PayloadJob unpack(std::span<const std::byte> message, const std::filesystem::path& folder,
                  const PayloadJob& like) {
  std::uint64_t size = 0;
  std::copy_n(message.begin(), sizeof(size), std::as_writable_bytes(std::span(&size, 1)).begin());
  message = message.subspan(sizeof(size));
  const auto* text = reinterpret_cast<const char*>(message.data());
  const Json head = Json::from_cbor(text, text + size);
  message = message.subspan(size);
  PayloadJob job;
  job.file = folder / head["file"].get<std::string>();
  job.access = like.access;
  job.block_bytes = like.block_bytes;
  job.durability = like.durability;
  job.file_bytes = head["file_bytes"].get<std::int64_t>();
  for (const Json& piece : head["pieces"]) {
    const auto bytes = piece[1].get<std::size_t>();
    job.payloads.push_back({piece[0].get<std::int64_t>(), message.first(bytes)});
    message = message.subspan(bytes);
  }
  return job;
}

}  // namespace finetune::checkpoint
