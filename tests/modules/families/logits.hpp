#pragma once
// SPDX-License-Identifier: Apache-2.0
// Logits against those of a golden case, of which the projections of each token's are kept.

#include <gtest/gtest.h>

#include "support/golden.hpp"
#include "support/margins.hpp"
#include "support/projections.hpp"

namespace finetune::tests {

/// `logits`: of all tokens one after the other. Logits are of the size of one: 3e-5 is about ten
/// times what two correct implementations differ by.
inline void expect_logits(std::span<const float> logits, const weights::ModelFiles& files) {
  const auto expected = read_golden<float>(files, "logits");
  const auto scale = read_golden<float>(files, "logits.scale");
  const double bound = element_bound(scale[0], scale[1], 3e-5 / static_cast<double>(scale[0]));
  const std::size_t num_tokens = expected.size() / Projection::size;
  const std::size_t vocabulary = logits.size() / num_tokens;
  ASSERT_EQ(vocabulary * num_tokens, logits.size());
  EXPECT_NEAR(largest_magnitude(logits), scale[0], bound + 1e-7 * static_cast<double>(scale[0]));
  for (std::size_t token = 0; token < num_tokens; ++token) {
    const double used = excess(logits.subspan(token * vocabulary, vocabulary),
                               std::span(expected).subspan(token * Projection::size), bound);
    EXPECT_LE(used, noted(used, 1)) << "token " << token;
  }
}

}  // namespace finetune::tests
