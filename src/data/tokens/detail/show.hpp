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

/// The same, by turns, behind a line for each such as "    2. user". All turns are there: the
/// longer the conversation, the more is left out in the midst of long runs, never at their ends. Of
/// hundreds of turns those in the middle are left out, too. `num_lost`: tokens that were cut off
/// behind the sample, which a line tells. `turns` is not empty.
std::string show_turns(const SampleSource& source, std::span<const PackedToken> sample,
                       std::span<const Turn> turns, std::int64_t num_lost = 0);

}  // namespace finetune::data
