#pragma once
// SPDX-License-Identifier: Apache-2.0
// What of a data set is trained otherwise than it was at an earlier start, as far as the token
// cache still has what that start read.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "data/text/source.hpp"
#include "data/tokens/load.hpp"

namespace finetune::data {

struct MaskChange {
  bool has_same_tokens = false;  ///< and in the same samples
  /// The first sample of which other tokens are trained, as it is read now and as it was: lines as
  /// in the data report, each behind four spaces at least. Empty where tokens differ.
  std::string shown;
};

/// Looks in `cache_folder` for tokens whose fingerprint `is_earlier` takes, and compares them with
/// those of `now`. `open` opens its source again, if something is to be shown. Nothing if
/// they are not there, or damaged. Not collective: it reads all tokens.
std::optional<MaskChange> find_mask_change(
    const std::filesystem::path& cache_folder,
    const std::function<bool(const std::string& fingerprint)>& is_earlier, const Loaded& now,
    const std::function<std::unique_ptr<SampleSource>()>& open);

}  // namespace finetune::data
