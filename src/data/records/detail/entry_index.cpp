// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/entry_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "core/error.hpp"

namespace finetune::data {
namespace {

[[noreturn]] void fail_changed(const core::File& file) {
  core::fail(core::ErrorKind::input,
             {file.path().string(), "is not what it was when it was first read",
              "its records end elsewhere", "Leave data files alone while a job reads them."});
}

}  // namespace

EntryIndex::EntryIndex(Cursor& cursor, NextEntry next, std::size_t most_entries)
    : next_(std::move(next)) {
  const auto most = static_cast<std::int64_t>(
      std::min<std::size_t>(most_entries, std::numeric_limits<std::int64_t>::max()));
  while (size_ < most && cursor.peek() != end_of_file) {
    const JsonEntry entry = next_(cursor);
    if (size_ % stride == 0) places_.push_back(entry);
    ++size_;
  }
}

EntryIndex::EntryIndex(NextEntry next, std::string_view bytes) : next_(std::move(next)) {
  const bool has_size = bytes.size() >= sizeof size_;
  if (has_size) std::memcpy(&size_, bytes.data(), sizeof size_);
  const auto num_places = static_cast<std::size_t>(size_ / stride + (size_ % stride != 0 ? 1 : 0));
  if (!has_size || size_ < 0 || bytes.size() - sizeof size_ != num_places * sizeof(JsonEntry))
    core::fail(core::ErrorKind::input,
               {"an index of records", "is none", fmt::format("it has {} bytes", bytes.size()),
                "Ranks run different programs, or the network changed what one sent."});
  places_.resize(num_places);
  std::memcpy(places_.data(), bytes.data() + sizeof size_, num_places * sizeof(JsonEntry));
}

void EntryIndex::forget() const {
  const std::lock_guard lock(cache_->mutex);
  cache_->recent = {};
  cache_->oldest = 0;
}

std::string EntryIndex::bytes() const {
  std::string bytes(sizeof size_ + places_.size() * sizeof(JsonEntry), '\0');
  std::memcpy(bytes.data(), &size_, sizeof size_);
  std::memcpy(bytes.data() + sizeof size_, places_.data(), places_.size() * sizeof(JsonEntry));
  return bytes;
}

JsonEntry EntryIndex::at(const core::File& file, std::int64_t i) const {
  core::check(0 <= i && i < size_, "an entry of the file");
  return block(file, i / stride)->at(static_cast<std::size_t>(i % stride));
}

std::shared_ptr<const EntryIndex::Block> EntryIndex::block(const core::File& file,
                                                           std::int64_t number) const {
  // Held while a block is read: threads that want neighbours of an entry want the same block.
  const std::lock_guard lock(cache_->mutex);
  for (const Recent& recent : cache_->recent)
    if (recent.number == number) return recent.block;
  Recent& oldest = cache_->recent[cache_->oldest];
  oldest = {number, std::make_shared<const Block>(read(file, number))};
  cache_->oldest = (cache_->oldest + 1) % most_blocks;
  return oldest.block;
}

EntryIndex::Block EntryIndex::read(const core::File& file, std::int64_t number) const {
  Block block;
  const auto count = static_cast<std::size_t>(std::min(stride, size_ - number * stride));
  block.reserve(count);
  const JsonEntry& first = places_.at(static_cast<std::size_t>(number));
  Cursor cursor(file, first);
  while (block.size() < count) {
    if (cursor.peek() == end_of_file) fail_changed(file);
    block.push_back(next_(cursor));
  }
  return block;
}

}  // namespace finetune::data
