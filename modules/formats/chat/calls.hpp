#pragma once
// SPDX-License-Identifier: Apache-2.0
// Functions that are on offer, and calls of them.

#include <string>
#include <vector>

#include "data/records/records.hpp"
#include "data/text/conversation.hpp"

namespace finetune::formats::chat {

struct ReadCalls {
  std::vector<data::ToolCall> calls = {};
  /// The same for templates: ChatMessage::fields says how. A list.
  data::OrderedJson list = data::OrderedJson::array();
};

/// One call or a list of them, {"name": ..., "arguments": ...}, alone or as the "function" of a
/// call, or the JSON text of either; arguments are JSON or its text. Throws: ErrorKind::input
/// beginning with `where` for what calls no function, or broken JSON.
ReadCalls read_calls(const data::OrderedJson& json, const std::string& where);

/// The functions on offer, each as dump_json writes it: a list, one function, or the JSON text of
/// either, also of each element; null and "" are none. Throws: ErrorKind::input beginning with
/// `where` for what is no object, or broken JSON.
std::vector<std::string> read_tools(const data::OrderedJson& json, const std::string& where);

/// An object, or its JSON text; null and "" are null. Throws: ErrorKind::input beginning with
/// `where` for anything else.
data::OrderedJson read_template_kwargs(const data::OrderedJson& json, const std::string& where);

}  // namespace finetune::formats::chat
