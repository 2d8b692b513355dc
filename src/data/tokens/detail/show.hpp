#pragma once
// SPDX-License-Identifier: Apache-2.0
// A sample as text, with its trained part marked.

#include <span>
#include <string>

#include "data/text/source.hpp"
#include "data/tokens/detail/dataset.hpp"

namespace finetune::data {

/// Lines of text: each begins with "    + " where its tokens are trained and with "    - " where
/// they are not, and holds no tokens of both. A new line in the sample is shown as \n and ends the
/// line. Of long runs the middle is left out, which a line without a mark tells.
std::string show(const SampleSource& source, std::span<const PackedToken> sample);

}  // namespace finetune::data
