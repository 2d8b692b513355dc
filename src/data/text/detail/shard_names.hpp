#pragma once
// SPDX-License-Identifier: Apache-2.0
// Files that say in their names how many there are: "train-00000-of-00003.parquet".

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::data {

/// What "train_sft-00000-of-00003.parquet" says of itself.
struct ShardName {
  std::string_view of;  ///< "train_sft"
  int number = 0;
  int num = 0;  ///< shards
};

/// Nothing: `name` is no such name.
std::optional<ShardName> shard_named(std::string_view name);

/// A folder that is only half copied is not to be taken for the whole. `names`: from `folder` on.
/// `key`: of the deck, whose value the folder is. Throws: ErrorKind::input, naming the first shard
/// that is missing.
void require_all_shards(const std::filesystem::path& folder, const std::vector<std::string>& names,
                        const std::string& key);

}  // namespace finetune::data
