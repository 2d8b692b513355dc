// SPDX-License-Identifier: Apache-2.0
#include "migrate/detail/sources/axolotl_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "migrate/detail/sources/roles.hpp"

namespace finetune::migrate {
namespace {

/// What axolotl calls a kind of data set, up to its colon or point.
struct DataKind {
  std::string_view name;
  std::string_view format;
  std::string_view prompt = "", input = "", answer = "", text = "";  ///< columns
};

constexpr auto kinds = std::to_array<DataKind>({
    {"alpaca", "alpaca"},
    {"alpaca_chat", "alpaca"},
    {"alpaca_w_system", "alpaca"},
    {"jeopardy", "alpaca", "question", "category", "answer"},
    {"gpteacher", "alpaca", "instruction", "input", "response"},
    {"oasst", "alpaca", "INSTRUCTION", "", "RESPONSE"},
    {"chat_template", "chat"},
    {"sharegpt", "chat"},
    {"completion", "text"},
    {"pretrain", "text"},
    {"", "tokens"},  // tokenized before
});

/// Names in a list, with commas between, without those that are known anyway.
std::string names_of_role(const Node& names, std::string_view role) {
  std::string text;
  const auto add = [&](const Node& name) {
    const auto known = data_role(name.text);
    if (name.is_text() && !name.text.empty() && known != role)
      text += (text.empty() ? "" : ", ") + name.text;
  };
  if (names.is_list())
    std::ranges::for_each(names.items, add);
  else
    add(names);
  return text;
}

/// What messages call their fields and roles.
void take_messages_of_axolotl(const Node& set, DataSet& out) {
  const auto put = [&](const char* path, const char* other, const char* ours,
                       std::initializer_list<std::string_view> usual) {
    const Node* value = text_in_axolotl(set, path);
    if (value == nullptr) value = text_in_axolotl(set, other);
    if (value != nullptr && std::ranges::find(usual, value->text) == usual.end())
      out.columns[ours] = value->text;
  };
  put("message_property_mappings.role", "message_field_role", "data.message_fields.role",
      {"role", "from"});
  put("message_property_mappings.content", "message_field_content", "data.message_fields.content",
      {"content", "value"});
  put("message_property_mappings.tool_calls", "", "data.message_fields.tool_calls", {"tool_calls"});
  put("message_property_mappings.reasoning_content", "", "data.message_fields.reasoning_content",
      {"reasoning_content"});
  put("message_field_training", "", "data.message_fields.weight", {"weight", "train"});
  for (const char* role : {"assistant", "system", "tool", "user"}) {
    const Node* names = set.find(std::string("roles.") + role);
    if (names == nullptr) continue;
    const std::string text = names_of_role(*names, role);
    if (!text.empty()) out.columns[std::string("data.roles.") + role] = text;
  }
}

void take_columns_of_axolotl(const Node& set, const DataKind& kind, DataSet& out) {
  const auto put = [&](const char* key, std::string_view column) {
    if (!column.empty()) out.columns[key] = std::string(column);
  };
  put("data.prompt_column", kind.prompt);
  put("data.input_column", kind.input);
  put("data.answer_column", kind.answer);
  const auto take = [&](const char* theirs, const char* ours) {
    if (const Node* value = text_in_axolotl(set, theirs)) put(ours, value->text);
  };
  if (kind.format == "chat") take("field_messages", "data.conversation_column");
  if (kind.format == "text") take("field", "data.text_column");
  if (kind.format == "text") take("text_column", "data.text_column");
  take("field_system", "data.system_column");
  take("field_tools", "data.tools_column");
}

bool is_name(const std::string& text) {
  return text.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") ==
             std::string::npos &&
         text.find_first_of("0123456789") != 0;
}

/// Jinja of a Python format of {instruction} and {input}, of which these are the columns; nothing
/// of what has other parts.
std::optional<std::string> jinja_of(std::string_view format, const std::string& instruction,
                                    const std::string& input) {
  if (!is_name(instruction) || !is_name(input)) return std::nullopt;
  std::string text;
  while (!format.empty()) {
    const std::size_t brace = std::min(format.find_first_of("{}"), format.size());
    text += format.substr(0, brace);
    format.remove_prefix(brace);
    if (format.empty()) break;
    const bool is_input = format.starts_with("{input}");
    if (!is_input && !format.starts_with("{instruction}")) return std::nullopt;
    text += fmt::format("{{{{ {} }}}}", is_input ? input : instruction);
    format.remove_prefix(format.find('}') + 1);
  }
  return text;
}

/// The prompt as `format` and `no_input_format` put it together; whether that could be told.
bool take_prompt(const Node& type, DataSet& out) {
  const auto named = [&](const char* key, const char* usual) {
    const Node* value = text_in_axolotl(type, key);
    return value == nullptr ? std::string(usual) : value->text;
  };
  if (text_in_axolotl(type, "format") == nullptr) return false;
  const std::string instruction = named("field_instruction", "instruction"),
                    input = named("field_input", "input");
  const auto with_input = jinja_of(named("format", ""), instruction, input);
  const auto without = jinja_of(named("no_input_format", "{instruction} "), instruction, input);
  if (!with_input || !without) return false;
  out.columns.erase("data.prompt_column");
  out.columns.erase("data.input_column");
  out.columns["data.prompt_template"] =
      fmt::format("{{% if {0} is defined and {0} %}}{1}{{% else %}}{2}{{% endif %}}", input,
                  *with_input, *without);
  return true;
}

/// A kind of their own: columns, and how they are put together.
bool take_custom(const Node& type, DataSet& out, Draft& draft) {
  if (!type.is_map()) return false;
  out.format = "alpaca";
  const auto take = [&](const char* theirs, const char* ours) {
    if (const Node* value = text_in_axolotl(type, theirs)) out.columns[ours] = value->text;
  };
  take("field_instruction", "data.prompt_column");
  take("field_input", "data.input_column");
  take("field_output", "data.answer_column");
  take("field_system", "data.system_column");
  const bool has_prompt = take_prompt(type, out);
  for (const char* key : {"format", "no_input_format", "system_format", "system_prompt"}) {
    const Node* value = text_in_axolotl(type, key);
    const bool is_kept = has_prompt && !std::string_view(key).starts_with("system");
    if (value != nullptr && !is_kept)
      draft.note(Kind::differs, fmt::format("type.{} = {}", key, value->shown()),
                 "a prompt is put together as data.template says");
  }
  return true;
}

}  // namespace

const Node* text_in_axolotl(const Node& set, const char* key) {
  const Node* value = set.find(key);
  return value != nullptr && value->is_text() && !value->is_empty() ? value : nullptr;
}

void take_kind_of_axolotl(const Node& set, const std::string& usual, DataSet& out, Draft& draft) {
  const Node* type = set.find("type");
  if (type != nullptr && take_custom(*type, out, draft)) return;
  const std::string whole = type == nullptr ? usual : type->text;
  const std::string name = whole.substr(0, whole.find_first_of(".:"));
  const auto found = std::ranges::find(kinds, name, &DataKind::name);
  if (found == kinds.end()) {
    draft.stop(set, fmt::format("datasets: type = {}", type == nullptr ? "null" : type->shown()),
               "data sets are alpaca, chat_template, sharegpt, completion or of columns",
               "data.format=auto");
    return;
  }
  out.format = std::string(found->format);
  if (out.format == "chat") take_messages_of_axolotl(set, out);
  take_columns_of_axolotl(set, *found, out);
  if (name != whole && !whole.starts_with("chat_template.default"))
    draft.note(Kind::differs, "type = " + whole, "prompts are written as data.template says");
}

}  // namespace finetune::migrate
