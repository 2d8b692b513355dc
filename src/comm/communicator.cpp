// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "comm/activity.hpp"
#include "comm/detail/broadcast.hpp"
#include "comm/detail/handle.hpp"
#include "comm/detail/waiting.hpp"
#include "core/error.hpp"

namespace finetune::comm {
namespace {

const std::string name_of_one = "one rank";

MPI_Op mpi_op(Reduce op) {
  switch (op) {
    case Reduce::min:
      return MPI_MIN;
    case Reduce::max:
      return MPI_MAX;
    default:
      return MPI_SUM;
  }
}

int mpi_count(std::int64_t count) {
  core::check(count >= 0 && count <= std::numeric_limits<int>::max(),
              "a collective moves fewer than 2^31 elements per rank");
  return static_cast<int>(count);
}

template <typename T>
void all_reduce_in_place(std::span<T> values, MPI_Datatype type, Reduce op, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, values.data(), mpi_count(std::ssize(values)), type,
                           mpi_op(op), comm, &request),
            "MPI_Iallreduce");
  finish(request, "MPI_Iallreduce");
}

/// Types are only moved, never reduced, so their size is all that matters.
MPI_Datatype mpi_type_of_size(std::int64_t bytes) {
  switch (bytes) {
    case 8:
      return MPI_UINT64_T;
    case 4:
      return MPI_UINT32_T;
    case 2:
      return MPI_UINT16_T;
    default:
      return MPI_BYTE;
  }
}

/// Without MPI there is nothing to wait for, and nobody to tell. Communicators of one rank tell,
/// so that a node with one rank counts as many collectives as a node with several.
template <typename Handle>
Activity::Scope inside(const Handle& handle, const char* collective, std::int64_t bytes = 0) {
  if (!handle) return {nullptr, Track::main, collective, name_of_one};
  return {handle->activity.get(),
          Track::main,
          collective,
          handle->name,
          {.first_rank = handle->first_rank, .num_ranks = handle->size, .bytes = bytes}};
}

}  // namespace

WorldRanks::~WorldRanks() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Group_free(&group_);
}

int WorldRanks::lowest_of(MPI_Comm comm, int size) const {
  MPI_Group own = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(comm, &own), "MPI_Comm_group");
  std::vector<int> ranks(static_cast<std::size_t>(size)), of_world(ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  check_mpi(MPI_Group_translate_ranks(own, size, ranks.data(), group_, of_world.data()),
            "MPI_Group_translate_ranks");
  MPI_Group_free(&own);
  return *std::min_element(of_world.begin(), of_world.end());
}

Communicator::Handle::~Handle() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  broadcast_levels.reset();
  if (owned && finalized == 0) MPI_Comm_free(&comm);
}

int Communicator::rank() const {
  return handle_ ? handle_->rank : 0;
}

int Communicator::size() const {
  return handle_ ? handle_->size : 1;
}

const std::string& Communicator::name() const {
  return handle_ ? handle_->name : name_of_one;
}

Activity* Communicator::activity() const {
  return handle_ ? handle_->activity.get() : nullptr;
}

Details Communicator::details(std::int64_t bytes) const {
  if (!handle_) return {.bytes = bytes};
  return {.first_rank = handle_->first_rank,
          .num_ranks = handle_->size,
          .bytes = bytes,
          .subject = handle_->activity ? handle_->activity->subject() : Label()};
}

int Communicator::node() const {
  return handle_ ? handle_->node : 0;
}

Communicator Communicator::split(int color, int key, std::string name, Watched watched) const {
  if (!handle_) return *this;
  const auto scope = inside(handle_, "split");
  auto handle = std::make_shared<Handle>();
  if (watched == Watched::yes) handle->activity = handle_->activity;
  handle->node = handle_->node;
  handle->world = handle_->world;
  arrive(handle_->comm);
  check_mpi(MPI_Comm_split(handle_->comm, color, key, &handle->comm), "MPI_Comm_split");
  handle->complete(std::move(name));
  return Communicator(std::move(handle));
}

Communicator Communicator::dup(std::string name) const {
  if (!handle_) return *this;
  const auto scope = inside(handle_, "dup");
  return Communicator(duplicate(std::move(name)));
}

Communicator Communicator::as_on_node(int node) const {
  if (!handle_) return *this;
  const auto scope = inside(handle_, "dup");
  auto handle = duplicate(name());
  handle->node = node;
  return Communicator(std::move(handle));
}

std::shared_ptr<Communicator::Handle> Communicator::duplicate(std::string name) const {
  auto handle = std::make_shared<Handle>();
  handle->activity = handle_->activity;
  handle->node = handle_->node;
  handle->world = handle_->world;
  arrive(handle_->comm);
  check_mpi(MPI_Comm_dup(handle_->comm, &handle->comm), "MPI_Comm_dup");
  handle->complete(std::move(name));
  return handle;
}

void Communicator::barrier() const {
  const auto scope = inside(handle_, "barrier");
  if (handle_) arrive(handle_->comm);
}

void Communicator::broadcast(std::span<std::byte> bytes, int root) const {
  if (!handle_) return;
  const auto scope = inside(handle_, "broadcast", std::ssize(bytes));
  broadcast_inside(bytes, root);
}

void Communicator::broadcast_inside(std::span<std::byte> bytes, int root) const {
  if (bytes.size() <= short_broadcast_bytes) {
    broadcast_pieces(handle_->comm, bytes, root);
    return;
  }
  // Made when first needed, by all ranks at once: they all have as many bytes.
  if (!handle_->has_broadcast_levels) {
    handle_->broadcast_levels = BroadcastLevels::make(handle_->comm, handle_->node);
    handle_->has_broadcast_levels = true;
  }
  if (handle_->broadcast_levels != nullptr) {
    handle_->broadcast_levels->broadcast(bytes, root);
  } else {
    broadcast_pieces(handle_->comm, bytes, root);
  }
}

std::string Communicator::broadcast_text(std::string text, int root) const {
  if (!handle_) return text;
  const auto scope = inside(handle_, "broadcast");
  auto size = static_cast<std::int64_t>(text.size());
  broadcast_inside(std::as_writable_bytes(std::span(&size, 1)), root);
  text.resize(static_cast<std::size_t>(size));
  broadcast_inside(std::as_writable_bytes(std::span(text)), root);
  return text;
}

void Communicator::all_gather(core::DType dtype, const void* shard, void* full,
                              std::int64_t count) const {
  const auto scope = inside(handle_, "all_gather", count * size() * core::size_bytes(dtype));
  all_gather_inside(dtype, shard, full, count);
}

void Communicator::all_gather_inside(core::DType dtype, const void* shard, void* full,
                                     std::int64_t count) const {
  const std::int64_t element_bytes = core::size_bytes(dtype);
  const auto* own_part = static_cast<std::byte*>(full) + rank() * count * element_bytes;
  const bool in_place = shard == own_part;
  if (!handle_ || size() == 1) {
    if (!in_place && count != 0)
      std::memcpy(full, shard, static_cast<std::size_t>(count * element_bytes));
    return;
  }
  MPI_Datatype type = mpi_type_of_size(element_bytes);
  const int n = mpi_count(count);
  const void* own = in_place ? MPI_IN_PLACE : shard;
  if (count * element_bytes * size() <= std::int64_t{short_broadcast_bytes}) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallgather(own, n, type, full, n, type, handle_->comm, &request),
              "MPI_Iallgather");
    finish(request, "MPI_Iallgather");
    return;
  }
  arrive(handle_->comm);
  check_mpi(MPI_Allgather(own, n, type, full, n, type, handle_->comm), "MPI_Allgather");
}

void Communicator::reduce_scatter(const float* full, float* shard, std::int64_t count) const {
  const auto scope =
      inside(handle_, "reduce_scatter", count * size() * std::int64_t{sizeof(float)});
  if (!handle_ || size() == 1) {
    if (full != shard && count != 0)
      std::memcpy(shard, full, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  arrive(handle_->comm);
  check_mpi(
      MPI_Reduce_scatter_block(full, shard, mpi_count(count), MPI_FLOAT, MPI_SUM, handle_->comm),
      "MPI_Reduce_scatter_block");
}

void Communicator::all_reduce(std::span<double> values, Reduce op) const {
  if (!handle_) return;
  const auto scope = inside(handle_, "all_reduce", std::ssize(std::as_bytes(values)));
  all_reduce_in_place(values, MPI_DOUBLE, op, handle_->comm);
}

void Communicator::all_reduce(std::span<float> values, Reduce op) const {
  if (!handle_) return;
  const auto scope = inside(handle_, "all_reduce", std::ssize(std::as_bytes(values)));
  all_reduce_in_place(values, MPI_FLOAT, op, handle_->comm);
}

void Communicator::all_reduce(std::span<std::int64_t> values, Reduce op) const {
  if (!handle_) return;
  const auto scope = inside(handle_, "all_reduce", std::ssize(std::as_bytes(values)));
  all_reduce_in_place(values, MPI_INT64_T, op, handle_->comm);
}

std::int64_t Communicator::all_reduce(std::int64_t value, Reduce op) const {
  all_reduce(std::span(&value, 1), op);
  return value;
}

double Communicator::all_reduce(double value, Reduce op) const {
  all_reduce(std::span(&value, 1), op);
  return value;
}

std::vector<std::vector<std::byte>> Communicator::all_gather_bytes(
    std::span<const std::byte> bytes) const {
  // One collective to whoever counts them, however many ranks there are.
  const auto scope = inside(handle_, "all_gather");
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(size()));
  const std::int64_t own = std::ssize(bytes);
  all_gather_inside(core::DType::i64, &own, sizes.data(), 1);
  std::vector<std::vector<std::byte>> parts;
  // One broadcast a rank: no displacement arithmetic in 32 bits, and no second copy of everything.
  for (int root = 0; root < size(); ++root) {
    std::vector<std::byte> part(static_cast<std::size_t>(sizes[static_cast<std::size_t>(root)]));
    if (root == rank()) std::copy(bytes.begin(), bytes.end(), part.begin());
    if (handle_) broadcast_inside(part, root);
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<std::string> Communicator::all_gather_text(std::string_view text) const {
  std::vector<std::string> texts;
  for (const auto& part : all_gather_bytes(std::as_bytes(std::span(text)))) {
    texts.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return texts;
}

}  // namespace finetune::comm
