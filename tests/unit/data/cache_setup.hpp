#pragma once
// SPDX-License-Identifier: Apache-2.0
// What tests of the token cache share: a folder, data and settings.

#include <algorithm>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "data/tokens/load.hpp"
#include "support/shared_folder.hpp"
#include "unit/data/fake.hpp"

namespace finetune::tests {

/// Names of what is in the cache of a folder. Collective on its ranks.
inline std::vector<std::string> cached_in(const SharedFolder& folder) {
  folder.ranks().barrier();
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "cache", ignored))
    if (entry.path().filename() != "digests.json") names.push_back(entry.path().filename());
  std::ranges::sort(names);
  folder.ranks().barrier();
  return names;
}

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

}  // namespace finetune::tests
