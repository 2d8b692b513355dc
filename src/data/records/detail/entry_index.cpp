// SPDX-License-Identifier: Apache-2.0
#include "data/records/detail/entry_index.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "core/error.hpp"

namespace finetune::data {
namespace {

struct Head {
  std::int64_t file_bytes;
  std::int64_t num_entries;
};

[[noreturn]] void fail_changed(const core::File& file) {
  core::fail(core::ErrorKind::input,
             {file.path().string(), "is not what it was when it was first read",
              "its records end elsewhere", "Leave data files alone while a job reads them."});
}

}  // namespace

EntryIndex::EntryIndex(Cursor& cursor, NextEntry next, std::size_t most_entries)
    : file_(&cursor.file()), next_(std::move(next)) {
  const auto most = static_cast<std::int64_t>(
      std::min<std::size_t>(most_entries, std::numeric_limits<std::int64_t>::max()));
  while (size_ < most && cursor.peek() != end_of_file) {
    const JsonEntry entry = next_(cursor);
    if (size_ % stride == 0) places_.push_back(entry);
    ++size_;
  }
}

EntryIndex::EntryIndex(const core::File& file, NextEntry next, std::string_view bytes)
    : file_(&file), next_(std::move(next)) {
  Head head{};
  if (bytes.size() < sizeof head) fail_changed(file);
  std::memcpy(&head, bytes.data(), sizeof head);
  bytes.remove_prefix(sizeof head);
  const auto num_places = static_cast<std::size_t>((head.num_entries + stride - 1) / stride);
  if (head.file_bytes != file.size_bytes() || head.num_entries < 0 ||
      bytes.size() != num_places * sizeof(JsonEntry))
    fail_changed(file);
  size_ = head.num_entries;
  places_.resize(num_places);
  std::memcpy(places_.data(), bytes.data(), bytes.size());
}

std::string EntryIndex::bytes() const {
  const Head head{file_->size_bytes(), size_};
  std::string bytes(sizeof head + places_.size() * sizeof(JsonEntry), '\0');
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + sizeof head, places_.data(), places_.size() * sizeof(JsonEntry));
  return bytes;
}

JsonEntry EntryIndex::at(std::int64_t i) const {
  core::check(0 <= i && i < size_, "an entry of the file");
  return block(i / stride)->at(static_cast<std::size_t>(i % stride));
}

std::shared_ptr<const EntryIndex::Block> EntryIndex::block(std::int64_t number) const {
  // Held while a block is read: threads that want neighbours of an entry want the same block.
  const std::lock_guard lock(cache_->mutex);
  for (const Recent& recent : cache_->recent)
    if (recent.number == number) return recent.block;
  Recent& oldest = cache_->recent[cache_->oldest];
  oldest = {number, std::make_shared<const Block>(read(number))};
  cache_->oldest = (cache_->oldest + 1) % most_blocks;
  return oldest.block;
}

EntryIndex::Block EntryIndex::read(std::int64_t number) const {
  Block block;
  const auto count = static_cast<std::size_t>(std::min(stride, size_ - number * stride));
  block.reserve(count);
  const JsonEntry& first = places_.at(static_cast<std::size_t>(number));
  Cursor cursor(*file_, first);
  while (block.size() < count) {
    if (cursor.peek() == end_of_file) fail_changed(*file_);
    block.push_back(next_(cursor));
  }
  return block;
}

}  // namespace finetune::data
