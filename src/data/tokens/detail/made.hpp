#pragma once
// SPDX-License-Identifier: Apache-2.0
// One sample as tokens, in the form in which it is kept.

#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "core/hash.hpp"
#include "data/text/source.hpp"
#include "data/tokens/detail/dataset.hpp"
#include "data/tokens/detail/options.hpp"

namespace finetune::data {

/// A sample as read: not yet cut.
struct Made {
  std::vector<PackedToken> tokens;
  core::Digest digest = {};  ///< of `tokens`
  std::uint32_t oddities = 0;
  std::vector<TrainedAnswer> answers = {};
  bool has_turns = false;
  std::exception_ptr error = {};  ///< it cannot be read, or has a token outside the vocabulary
};

/// Samples [begin, begin + made.size()) of `source`, by as many threads as there are.
void make_all(const SampleSource& source, std::int64_t begin, std::span<Made> made,
              const DatasetOptions& options, int num_threads);

}  // namespace finetune::data
