#pragma once
// SPDX-License-Identifier: Apache-2.0
// What one rank makes of its part of the samples before the ranks put their parts together.

#include <cstdint>
#include <limits>
#include <vector>

#include "data/dataset.hpp"
#include "data/load.hpp"

namespace finetune::data {

/// What was found in some of the samples. Indices are those of the reader.
struct Findings {
  static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();

  std::int64_t num_overlong = 0;
  std::int64_t num_truncated = 0;
  std::int64_t num_masked = 0;
  std::int64_t num_dropped = 0;
  std::int64_t eos_trained = 0;
  std::int64_t longest = 0;
  std::int64_t first_overlong = none;
  std::int64_t first_masked = none;
};

struct Part {
  std::vector<PackedToken> tokens;
  std::vector<std::int64_t> lengths;  ///< of the samples kept
  Findings findings;
};

/// Tokenises samples [begin, end) of `reader`. Overlong and masked samples are counted, and kept or
/// dropped by `options`; where `options` refuse them they are dropped, for the caller to refuse
/// once all ranks have counted.
/// Throws: ErrorKind::input for a sample that cannot be read or a token outside the vocabulary.
Part tokenise_part(const Reader& reader, std::int64_t begin, std::int64_t end, Layout layout,
                   const Encoder& encoder, const DatasetOptions& options);

}  // namespace finetune::data
