// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/files.hpp"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

/// Readers one after the other.
class Chain final : public SampleReader {
 public:
  explicit Chain(std::vector<std::unique_ptr<SampleReader>> parts) : parts_(std::move(parts)) {}

  std::int64_t size() const override { return ends().back(); }

  Sample sample(std::int64_t i) const override {
    const auto [reader, within] = find(i);
    return reader->sample(within);
  }

  std::string where(std::int64_t i) const override {
    const auto [reader, within] = find(i);
    return reader->where(within);
  }

  std::vector<fs::path> files() const override {
    std::vector<fs::path> all;
    for (const auto& part : parts_) {
      const auto files = part->files();
      all.insert(all.end(), files.begin(), files.end());
    }
    return all;
  }

  std::vector<Records*> record_files() const override {
    std::vector<Records*> all;
    for (const auto& part : parts_) {
      const auto files = part->record_files();
      all.insert(all.end(), files.begin(), files.end());
    }
    return all;
  }

 private:
  /// Of parts 0 .. p the samples. Which reader has how many may take a pass over its file.
  const std::vector<std::int64_t>& ends() const {
    const std::lock_guard lock(mutex_);
    for (std::size_t next = ends_.size(); next < parts_.size(); ++next) {
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + parts_[next]->size());
      parts_[next]->release();
    }
    return ends_;
  }

  std::pair<const SampleReader*, std::int64_t> find(std::int64_t i) const {
    const auto& ends = this->ends();
    const auto part = std::upper_bound(ends.begin(), ends.end(), i) - ends.begin();
    const SampleReader* reader = parts_.at(static_cast<std::size_t>(part)).get();
    keep_open(reader);
    return {reader, part == 0 ? i : i - ends[static_cast<std::size_t>(part) - 1]};
  }

  /// The files read last stay open, the others do not.
  void keep_open(const SampleReader* reader) const {
    constexpr std::size_t most_open = 4;
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(open_, reader) != open_.end()) return;
    open_.push_back(reader);
    if (open_.size() <= most_open) return;
    open_.front()->release();
    open_.erase(open_.begin());
  }

  std::vector<std::unique_ptr<SampleReader>> parts_;
  mutable std::vector<const SampleReader*> open_;  ///< in the order in which they were opened
  mutable std::mutex mutex_;
  mutable std::vector<std::int64_t> ends_;
};

}  // namespace

std::unique_ptr<SampleReader> open_files(
    const DataPath& where, const std::vector<std::string_view>& extensions,
    const std::function<std::unique_ptr<SampleReader>(const fs::path&)>& open) {
  if (!is_several(where)) return open(where.path);
  std::vector<std::unique_ptr<SampleReader>> readers;
  for (const fs::path& file : choose_split(where, extensions).chosen)
    readers.push_back(open(file));
  return std::make_unique<Chain>(std::move(readers));
}

}  // namespace finetune::data
