// SPDX-License-Identifier: Apache-2.0
#include "data/text/detail/files.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace finetune::data {
namespace {

namespace fs = std::filesystem;

/// Readers one after the other.
class Chain final : public SampleReader {
 public:
  explicit Chain(std::vector<std::unique_ptr<SampleReader>> parts) : parts_(std::move(parts)) {
    std::int64_t end = 0;
    for (const auto& part : parts_)
      ends_.push_back(end += part->size());
  }

  std::int64_t size() const override { return ends_.back(); }

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

 private:
  std::pair<const SampleReader*, std::int64_t> find(std::int64_t i) const {
    const auto part = std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin();
    const SampleReader* reader = parts_.at(static_cast<std::size_t>(part)).get();
    return {reader, i - (ends_[static_cast<std::size_t>(part)] - reader->size())};
  }

  std::vector<std::unique_ptr<SampleReader>> parts_;
  std::vector<std::int64_t> ends_;  // ends_[p]: samples in parts 0 .. p
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
