#pragma once
// SPDX-License-Identifier: Apache-2.0
// Base64 (RFC 4648), in which tokenizer files write bytes.

#include <optional>
#include <string>
#include <string_view>

namespace finetune::tokenizer {

/// The bytes that `text` stands for; nothing if it is not base64 with its padding.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace finetune::tokenizer
