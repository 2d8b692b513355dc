#pragma once
// SPDX-License-Identifier: Apache-2.0
// What tests of the token cache share: a folder, data and settings.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "data/tokens/load.hpp"
#include "unit/data/fake.hpp"

namespace finetune::tests {

/// A folder that ranks share, removed at the end. Collective on them.
class SharedFolder {
 public:
  explicit SharedFolder(comm::Communicator ranks) : ranks_(std::move(ranks)) {
    path_ = ranks_.broadcast_text(own_.path().string());
  }
  ~SharedFolder() { ranks_.barrier(); }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Written by the root, seen by all.
  std::filesystem::path write(const std::string& name, std::string_view content) const {
    if (ranks_.is_root()) std::ofstream(path_ / name, std::ios::binary) << content;
    ranks_.barrier();
    return path_ / name;
  }
  /// Names of what is in the folder of the cache.
  std::vector<std::string> cached() const {
    ranks_.barrier();
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(path_ / "cache", ignored))
      if (entry.path().filename() != "digests.json") names.push_back(entry.path().filename());
    std::ranges::sort(names);
    ranks_.barrier();
    return names;
  }

 private:
  comm::Communicator ranks_;
  TemporaryFolder own_;
  std::filesystem::path path_;
};

struct CacheSetup {
  comm::Communicator ranks;
  SharedFolder folder{ranks};
  FakeSource source;
  data::DatasetOptions options;
  data::CacheOptions cache;
  data::Layout layout = data::Layout::separate;

  explicit CacheSetup(comm::Communicator all, std::int64_t num_samples = 41)
      : ranks(std::move(all)) {
    const core::RandomKey key(9, core::RandomUse::test);
    for (std::int64_t i = 0; i < num_samples; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      source.add(std::string(key.below(3 * at, 9), 'p'),
                 std::string(1 + key.below(3 * at + 1, 20), static_cast<char>('a' + i % 26)));
    }
    source.from = {folder.write("data.jsonl", "what it says")};
    options.max_seq_length = 16;
    options.vocab_size = fake_vocab_size;
    cache.folder = folder.path() / "cache";
  }

  /// By all ranks, as one node.
  data::Loaded load() const { return load({ranks, ranks}); }
  data::Loaded load(const data::DataRanks& these) const {
    return data::load(these, source, layout, options, cache, 2);
  }
};

/// What a dataset holds and what is said of it.
inline std::string kept(const data::Loaded& loaded) {
  return loaded.fingerprint + " " + fingerprint_of(loaded.dataset) + " " +
         to_json(loaded.report).dump();
}

inline std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace finetune::tests
