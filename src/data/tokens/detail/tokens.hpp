#pragma once
// SPDX-License-Identifier: Apache-2.0
// A sample's text as tokens and labels.

#include <cstdint>
#include <vector>

namespace finetune::data {

/// The label of a token that is not trained.
inline constexpr std::int32_t not_trained = -100;

/// Ids and labels of one sequence, of equal size. labels[i] is ids[i] where token i is trained, and
/// not_trained elsewhere; nothing is shifted.
struct Tokens {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
};

}  // namespace finetune::data
