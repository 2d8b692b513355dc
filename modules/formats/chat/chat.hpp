#pragma once
// SPDX-License-Identifier: Apache-2.0
// Conversations, in the several ways that people write them down.

#include "data/text/format.hpp"

namespace finetune::formats::chat {

/// Records of conversations in any of the ways below, distinguished by the names of their fields.
///
/// A message has a role: system, user (human), assistant (gpt), tool (function, observation, ...),
/// or function_call, whose text is the JSON of a call; a message of another role is left out, which
/// the data report counts. Its content is a text, or a list of parts of text and reasoning.
/// `tool_calls`, `reasoning_content`, and `weight` (0: this answer is not trained) are understood;
/// pictures and sound are refused. Beside the messages a record may hold a system message and the
/// functions on offer (see data.system_column and data.tools_column); other fields are skipped.
data::Format format();

/// {"messages": [{"role": "user", "content": "..."}, ...]}, as the services of OpenAI take it.
data::Format messages();

/// {"conversations": [{"from": "user", "value": "..."}, ...]}, as Qwen's finetune.py takes it.
data::Format qwen();

/// {"conversations": [{"from": "human", "value": "..."}, ...]}.
data::Format sharegpt();

}  // namespace finetune::formats::chat
