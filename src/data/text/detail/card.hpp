#pragma once
// SPDX-License-Identifier: Apache-2.0
// What README.md of a data set's folder says of its files: the part between two lines --- at its
// beginning, as on the Hugging Face Hub.

#include <filesystem>
#include <string>
#include <vector>

namespace finetune::data {

/// Files of one split, by patterns from the folder on.
struct CardSplit {
  std::string name;
  std::vector<std::string> patterns;
};

/// One of the data sets in a folder.
struct CardSubset {
  std::string name;
  bool is_default = false;
  std::string folder;  ///< where its files are if no split is listed; empty: in all
  std::vector<CardSplit> splits;
};

/// The data sets ("configs") that README.md in `folder` lists; none without them.
/// Throws: ErrorKind::input for a list that cannot be understood.
std::vector<CardSubset> read_card(const std::filesystem::path& folder);

}  // namespace finetune::data
