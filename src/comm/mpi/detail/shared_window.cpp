// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/detail/shared_window.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <random>

#include "core/text.hpp"

namespace finetune::comm {
namespace {

constexpr std::int64_t page_bytes = 4096;

/// A segment that is being set up: a descriptor, and what went wrong.
struct Segment {
  int descriptor = -1;
  void* memory = MAP_FAILED;
  std::string problem;

  bool is_good() const { return problem.empty(); }
  void fail(const char* call, int error) {
    if (is_good()) problem = fmt::format("{}: {}", call, std::strerror(error));
  }
};

std::string segment_name() {
  std::random_device random;
  return fmt::format("/finetune-{}-{:08x}{:08x}", ::getpid(), random(), random());
}

/// Takes the memory now, so that a file system which is too small says so instead of killing the
/// rank that touches a page.
void create_segment(const std::string& name, std::int64_t bytes, Segment& segment) {
  segment.descriptor = ::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (segment.descriptor < 0) return segment.fail("shm_open", errno);
  int error = 0;
  do {
    error = ::posix_fallocate(segment.descriptor, 0, bytes);
  } while (error == EINTR);
  if (error != 0)
    segment.fail(fmt::format("{} in /dev/shm", core::human_bytes(bytes)).c_str(), error);
}

void open_segment(const std::string& name, Segment& segment) {
  segment.descriptor = ::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0600);
  // Containers of their own may each have a /dev/shm of their own.
  if (segment.descriptor < 0) segment.fail("the segment of another rank of this node", errno);
}

void map_segment(std::size_t bytes, Segment& segment) {
  if (!segment.is_good()) return;
  segment.memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment.descriptor, 0);
  if (segment.memory == MAP_FAILED) segment.fail("mmap", errno);
}

/// The first reason that a rank has, on every rank. Collective on `node`.
std::string agree_on_problem(const Communicator& node, const std::string& problem) {
  const std::int64_t first =
      node.all_reduce(std::int64_t{problem.empty() ? node.size() : node.rank()}, Reduce::min);
  return first == node.size() ? "" : node.broadcast_text(problem, static_cast<int>(first));
}

}  // namespace

std::unique_ptr<SharedWindow> SharedWindow::make(const Communicator& node, std::int64_t half_bytes,
                                                 std::string& why) {
  half_bytes = (half_bytes + page_bytes - 1) / page_bytes * page_bytes;
  const auto ranks = static_cast<std::int64_t>(node.size());
  const std::int64_t head = (ranks * static_cast<std::int64_t>(sizeof(Progress)) + page_bytes - 1) /
                            page_bytes * page_bytes;
  const std::int64_t bytes = head + ranks * 2 * half_bytes;
  Segment segment;
  const std::string own_name = segment_name();
  if (node.is_root()) create_segment(own_name, bytes, segment);
  why = agree_on_problem(node, segment.problem);
  if (why.empty()) {
    const std::string name = node.broadcast_text(own_name);
    if (!node.is_root()) open_segment(name, segment);
    map_segment(static_cast<std::size_t>(bytes), segment);
    why = agree_on_problem(node, segment.problem);
  }
  // Whoever has it keeps it; nobody else can find it, and nobody need remove it.
  if (node.is_root()) ::shm_unlink(own_name.c_str());
  if (segment.descriptor >= 0) ::close(segment.descriptor);
  if (!why.empty()) {
    if (segment.memory != MAP_FAILED) ::munmap(segment.memory, static_cast<std::size_t>(bytes));
    return nullptr;
  }
  return std::unique_ptr<SharedWindow>(new SharedWindow(
      segment.memory, static_cast<std::size_t>(bytes), node.rank(), node.size(), half_bytes));
}

SharedWindow::SharedWindow(void* memory, std::size_t bytes, int position, int num_ranks,
                           std::int64_t half_bytes)
    : memory_(static_cast<std::byte*>(memory)),
      bytes_(bytes),
      position_(position),
      num_ranks_(num_ranks),
      half_bytes_(half_bytes) {
  // New segments hold zeros, which is where all counters begin; no rank writes another's.
}

SharedWindow::~SharedWindow() {
  if (!is_left_) ::munmap(memory_, bytes_);
}

SharedWindow::Progress& SharedWindow::progress(int position) const {
  return reinterpret_cast<Progress*>(memory_)[position];
}

std::byte* SharedWindow::half(int position, std::int64_t frame) const {
  const std::size_t slices = bytes_ - static_cast<std::size_t>(2 * half_bytes_ * num_ranks_);
  return memory_ + slices + (2 * position + frame % 2) * half_bytes_;
}

std::int64_t SharedWindow::begin_frame(const PointToPoint& messages) {
  const std::int64_t frame = num_begun_++;
  for (int position = 0; position < num_ranks_; ++position) {
    const auto& read = progress(position).read;
    messages.wait_until([&] { return read.load(std::memory_order_acquire) >= frame - 1; });
  }
  return frame;
}

void SharedWindow::publish(std::int64_t frame) {
  progress(position_).published.store(frame + 1, std::memory_order_release);
}

void SharedWindow::wait_for(const PointToPoint& messages, int position, std::int64_t frame) const {
  const auto& published = progress(position).published;
  messages.wait_until([&] { return published.load(std::memory_order_acquire) > frame; });
}

void SharedWindow::mark_read(std::int64_t frame) {
  progress(position_).read.store(frame + 1, std::memory_order_release);
}

}  // namespace finetune::comm
