#pragma once
// SPDX-License-Identifier: Apache-2.0
// Conversations as templates see them: values whose texts know which message said them, and as
// what.

#include <cstdint>
#include <vector>

#include "data/text/conversation.hpp"
#include "jinja/value.hpp"

namespace finetune::data {

/// What a text of a message is, as fields of its jinja::Origin; its element is the message's
/// number.
enum class Said : std::uint8_t { content = 1, reasoning, call, other, tool };

/// Each message, with everything that the data say of it.
std::vector<jinja::Value> message_values(const Conversation& conversation);

/// The functions on offer; none if there are none.
jinja::Value tool_values(const Conversation& conversation);

}  // namespace finetune::data
