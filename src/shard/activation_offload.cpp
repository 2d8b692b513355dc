// SPDX-License-Identifier: Apache-2.0
#include "shard/activation_offload.hpp"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "core/error.hpp"
#include "model/pinned.hpp"
#include "plan/memory/buffers.hpp"
#include "shard/detail/recorded_event.hpp"

namespace finetune::shard {
namespace {

c10::Stream computing(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

void make_wait(const c10::Stream& stream, std::optional<c10::Event>& event) {
  if (event) event->block(stream);
  event.reset();
}

/// Pinned memory for `bytes`, as plan::offloaded_host_bytes counts it.
std::vector<at::Tensor> pinned_pieces(std::int64_t bytes) {
  std::vector<at::Tensor> pieces;
  for (; bytes > 0; bytes -= pieces.back().numel())
    pieces.push_back(
        model::pinned_empty({std::min(bytes, plan::offloaded_piece_bytes)}, at::kByte));
  return pieces;
}

}  // namespace

OffloadedBlock::~OffloadedBlock() {
  try {
    make_wait(computing(device_), copied_);
  } catch (const std::exception&) {
    // A device that fails here has failed before, which is what is reported.
  }
}

ActivationOffload::ActivationOffload(at::Device device)
    : device_(device), copies_(c10::impl::VirtualGuardImpl(device.type()).getNewStream(device)) {}

c10::Event ActivationOffload::copied() const {
  c10::Event event(device_.type());
  event.record(copies_);
  return event;
}

void ActivationOffload::offload(OffloadedBlock& block) {
  std::int64_t all = 0;
  for (const auto& memory : block.kept.memories())
    all += block.sizes_.emplace_back(memory->bytes.numel());
  recorded_event(device_, c10::EventFlag::PYTORCH_DEFAULT).block(copies_);
  const c10::StreamGuard on(copies_);
  const std::vector<at::Tensor> pieces = pinned_pieces(all);
  // One memory after the other, cut where a piece ends.
  std::size_t i_piece = 0;
  std::int64_t used = 0;
  for (std::size_t i = 0; i < block.sizes_.size(); ++i) {
    const at::Tensor& bytes = block.kept.memories()[i]->bytes;
    for (std::int64_t first = 0; first < block.sizes_[i];) {
      const at::Tensor& piece = pieces[i_piece];
      const std::int64_t count = std::min(block.sizes_[i] - first, piece.numel() - used);
      const at::Tensor host = piece.narrow(0, used, count);
      host.copy_(bytes.narrow(0, first, count), /*non_blocking=*/true);
      block.parts_.push_back({i, first, host});
      first += count;
      used += count;
      if (used < piece.numel()) continue;
      ++i_piece;
      used = 0;
    }
  }
  block.copied_ = copied();
}

void ActivationOffload::drop(OffloadedBlock& block) {
  make_wait(computing(device_), block.copied_);
  for (const auto& memory : block.kept.memories())
    memory->bytes.reset();
}

void ActivationOffload::bring_back(OffloadedBlock& block) {
  auto& memories = block.kept.memories();
  core::check(memories.size() == block.sizes_.size(), "what was offloaded is brought back");
  const auto options = at::TensorOptions().dtype(at::kByte).device(device_);
  for (std::size_t i = 0; i < memories.size(); ++i)
    memories[i]->bytes = at::empty({block.sizes_[i]}, options);
  // The new memory may be what the computation still reads for somebody else.
  recorded_event(device_, c10::EventFlag::PYTORCH_DEFAULT).block(copies_);
  const c10::StreamGuard on(copies_);
  for (const OffloadedBlock::Part& part : block.parts_)
    memories[part.memory]
        ->bytes.narrow(0, part.first, part.host.numel())
        .copy_(part.host, /*non_blocking=*/true);
  block.copied_ = copied();
}

void ActivationOffload::arrive(OffloadedBlock& block) {
  make_wait(computing(device_), block.copied_);
  // libtorch gives pinned memory to nobody else before copies from it are done.
  block.parts_.clear();
  block.kept.memories().clear();
}

}  // namespace finetune::shard
