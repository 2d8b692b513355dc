#pragma once
// SPDX-License-Identifier: Apache-2.0
// One message of a conversation as JSON.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "data/records/fields.hpp"
#include "data/records/records.hpp"
#include "data/text/conversation.hpp"
#include "data/text/format.hpp"
#include "formats/chat/calls.hpp"

namespace finetune::formats::chat {

/// What a message's fields and their roles are called; the first name that is there counts.
struct FieldNames {
  std::vector<std::string> role;
  std::vector<std::string> text;
  std::vector<std::string> reasoning = {"reasoning_content", "reasoning", "thinking"};
  std::vector<std::string> calls = {"tool_calls", "function_call"};
  std::vector<std::string> weight = {"weight", "loss_weight", "train"};
  std::map<std::string, data::NamedRole> roles = {};  ///< before data::role_named

  /// `usual` but for what data.message_fields and data.roles say.
  static FieldNames chosen(const data::Columns& columns, FieldNames usual);
};

/// Reads a message. `where` names the message: "file:line: message 2". One of a role that is not
/// known may hold anything: its text is empty where it has none. Throws: ErrorKind::input for what
/// is no message, or not of text.
data::ChatMessage read_message(const data::OrderedJson& json, const FieldNames& names,
                               const std::string& where);

/// A list of messages, appended to `conversation`; what it says is of the field `name`. Throws:
/// ErrorKind::input as read_message, for what is no list or has none, for a role that is not known.
void add_messages(const data::OrderedJson& list, const FieldNames& names, const std::string& name,
                  const std::string& where, data::Conversation& conversation);

/// `list`, a list of messages in a record of `records`. Where those are of a table, the fields that
/// only other messages have are not there; a text that is null stays.
data::OrderedJson messages_of(const data::Records& records, data::OrderedJson list,
                              const FieldNames& names);

/// A field beside the messages, or null; of tables without what only other records have.
/// Throws: ErrorKind::input as data::find_field.
data::OrderedJson beside(const data::Records& records, const data::OrderedJson& record,
                         const data::Column& column, const std::string& where);

/// The column of functions on offer.
inline constexpr data::Field tools_field{"tools", &data::Columns::tools, "data.tools_column"};

/// What `beside` has there. Throws: also as read_tools.
std::vector<std::string> tools_beside(const data::Records& records, const data::OrderedJson& record,
                                      const data::Column& column, const std::string& where);

/// The column of names for the template.
inline constexpr data::Field kwargs_field{"chat_template_kwargs"};

/// What `beside` has there. Throws: also as read_template_kwargs.
data::OrderedJson kwargs_beside(const data::Records& records, const data::OrderedJson& record,
                                const data::Column& column, const std::string& where);

/// What a record of `records` says by "messages", with "tools" and "chat_template_kwargs" where it
/// has them. Throws: ErrorKind::input as add_messages, tools_beside and kwargs_beside.
data::Conversation conversation_of(const data::Records& records, const data::OrderedJson& record,
                                   const std::string& where);

}  // namespace finetune::formats::chat
