#pragma once
// SPDX-License-Identifier: Apache-2.0
// One message of a conversation as JSON.

#include <optional>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "data/records/records.hpp"
#include "data/text/conversation.hpp"

namespace finetune::formats::chat {

/// What a message's fields are called; the first name that is there counts.
struct FieldNames {
  std::vector<std::string> role;
  std::vector<std::string> text;
};

/// Reads a message. `where` names the message: "file:line: message 2". Nothing for a role that is
/// not known. Throws: ErrorKind::input for what is no message, or not of text.
std::optional<data::ChatMessage> read_message(const data::OrderedJson& json,
                                              const FieldNames& names, const std::string& where);

/// The functions on offer: a list, one function, or the JSON text of either; null and "" are none.
std::vector<std::string> read_tools(const data::OrderedJson& json, const std::string& where);

}  // namespace finetune::formats::chat
