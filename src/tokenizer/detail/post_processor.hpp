#pragma once
// SPDX-License-Identifier: Apache-2.0
// The post-processor of tokenizer.json: the tokens around a text, such as the begin token.

#include <cstdint>
#include <optional>
#include <vector>

#include "tokenizer/detail/json_node.hpp"

namespace finetune::tokenizer {

struct PostProcessor {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;

  /// Reads the value of "post_processor": TemplateProcessing (for single texts), BertProcessing
  /// and RobertaProcessing, ByteLevel (which only moves offsets), Sequence. `vocab_size` bounds the
  /// ids.
  static PostProcessor read(const std::optional<JsonNode>& node, std::int32_t vocab_size);
};

}  // namespace finetune::tokenizer
