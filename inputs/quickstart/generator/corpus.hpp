#pragma once
// SPDX-License-Identifier: Apache-2.0
// Plain text for pre-training: stories, talks, lists and lessons of the world, no instructions.

#include <cstdint>
#include <string>

namespace finetune::quickstart {

/// Document number `i` of the corpus: some paragraphs of text without a newline at the end.
std::string document(std::uint64_t i);

}  // namespace finetune::quickstart
