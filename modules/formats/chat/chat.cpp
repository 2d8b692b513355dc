// SPDX-License-Identifier: Apache-2.0
#include "formats/chat/chat.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/records/fields.hpp"
#include "data/text/columns.hpp"
#include "data/text/record_reader.hpp"
#include "data/text/source.hpp"
#include "formats/chat/message.hpp"

namespace finetune::formats::chat {
namespace {

using data::Column;
using data::Columns;

constexpr data::Field system_field{"system", &Columns::system, "data.system_column"};

constexpr data::Field list_field(const char* name) {
  return {name, &Columns::conversation, "data.conversation_column"};
}

/// One way to write conversations down.
struct Dialect {
  std::string name;
  std::vector<data::Field> lists;  ///< the first that is there counts
  FieldNames fields;
};

/// The columns that may hold the messages; the one that the deck chooses, if it does.
std::vector<Column> lists_of(const Dialect& dialect, const Columns& columns) {
  std::vector<Column> lists;
  for (const data::Field& field : dialect.lists)
    lists.push_back(data::column_of(columns, field));
  const auto chosen = std::ranges::find_if(lists, &Column::chosen);
  return chosen == lists.end() ? lists : std::vector{*chosen};
}

class ChatReader final : public data::RecordReader {
 public:
  ChatReader(const std::filesystem::path& path, const Columns& columns, const Dialect& dialect)
      : data::RecordReader(path),
        lists_(lists_of(dialect, columns)),
        names_(FieldNames::chosen(columns, dialect.fields)),
        turns_(columns.turns),
        system_(data::column_of(columns, system_field)),
        tools_(data::column_of(columns, tools_field)),
        kwargs_(data::column_of(columns, kwargs_field)) {
    std::vector<std::string> names = {tools_.name, kwargs_.name};
    for (const Column& list : lists_)
      names.push_back(list.name);
    oddities_ = left_out_of(names);
  }

 private:
  void read(std::int64_t i, data::Sample& sample) const override {
    sample.oddities = oddities_;
    const data::OrderedJson record = records().object(i);
    if (turns_.empty())
      read_list(record, sample);
    else
      read_turns(record, sample);
    add_system(record, sample);
    sample.conversation.tools = tools_beside(records(), record, tools_, sample.where);
    sample.conversation.template_kwargs = kwargs_beside(records(), record, kwargs_, sample.where);
  }

  void read_list(const data::OrderedJson& record, data::Sample& sample) const {
    const Column& column = column_of(record);
    const data::OrderedJson list =
        data::structured(messages_of(records(), data::field(record, column, sample.where), names_),
                         column.name, sample.where);
    if (!list.is_array()) {
      core::fail(core::ErrorKind::input,
                 {sample.where,
                  fmt::format("field \"{}\" is of type {}", core::one_line(column.name),
                              core::type_name(list)),
                  "a conversation is a list of messages",
                  "Correct it, or name another field in data.conversation_column."});
    }
    read_messages(list, sample);
  }

  /// What user and assistant say by turns, each in a column; the first two are always there.
  void read_turns(const data::OrderedJson& record, data::Sample& sample) const {
    std::optional<std::string> missing;
    for (std::size_t t = 0; t < turns_.size(); ++t) {
      const Column column{turns_[t], fmt::format("data.turn_columns[{}]", t), t < 2};
      std::string text = data::optional_text_field(record, column, sample.where);
      if (t >= 2 && text.empty()) {
        if (!missing) missing = column.name;
        continue;
      }
      if (missing)
        core::fail(core::ErrorKind::input,
                   {sample.where,
                    fmt::format("field \"{}\" is empty, but not \"{}\"", core::one_line(*missing),
                                core::one_line(column.name)),
                    "a turn would be left out", "Correct this sample, or data.turn_columns."});
      sample.conversation.messages.push_back(
          {t % 2 == 0 ? data::ChatRole::user : data::ChatRole::assistant, std::move(text)});
    }
  }

  const Column& column_of(const data::OrderedJson& record) const {
    const auto there = std::ranges::find_if(
        lists_, [&](const Column& column) { return record.contains(column.name); });
    return there == lists_.end() ? lists_.front() : *there;
  }

  void read_messages(const data::OrderedJson& list, data::Sample& sample) const {
    auto& messages = sample.conversation.messages;
    for (const data::OrderedJson& each : list)
      messages.push_back(read_message(
          each, names_, fmt::format("{}: message {}", sample.where, messages.size() + 1)));
    if (!messages.empty()) return;
    core::fail(core::ErrorKind::input,
               {sample.where, "the conversation has no message",
                "there is nothing to learn from it", "Remove this sample."});
  }

  void add_system(const data::OrderedJson& record, data::Sample& sample) const {
    const std::string text = data::optional_text_field(record, system_, sample.where);
    if (text.empty()) return;
    auto& messages = sample.conversation.messages;
    if (messages.front().role == data::ChatRole::system) {
      if (messages.front().text == text) return;
      core::fail(core::ErrorKind::input,
                 {sample.where,
                  fmt::format("field \"{}\" and the first message are two system messages",
                              core::one_line(system_.name)),
                  "only one of the two could be meant", "Remove one."});
    }
    messages.insert(messages.begin(), {data::ChatRole::system, text, {}, {}});
  }

  std::vector<Column> lists_;
  FieldNames names_;
  std::vector<std::string> turns_;
  Column system_;
  Column tools_;
  Column kwargs_;
  std::uint32_t oddities_ = 0;  ///< of every sample
};

data::Format format_of(const Dialect& dialect) {
  const auto open = [dialect](const data::DataPath& path, const Columns& columns) {
    return data::open_files(path, data::record_endings(), [&](const std::filesystem::path& file) {
      return std::make_unique<ChatReader>(file, columns, dialect);
    });
  };
  data::Format format{dialect.name, data::Layout::separate, open};
  format.needs_template = true;
  format.reads_messages = true;
  format.fields = dialect.lists;
  format.fields.push_back(system_field);
  format.fields.push_back(tools_field);
  format.fields.push_back(kwargs_field);
  return format;
}

Dialect any_dialect() {
  return {"chat",
          {list_field("messages"), list_field("conversations"), list_field("conversation")},
          {{"role", "from"}, {"content", "value"}}};
}

Dialect messages_dialect() {
  return {"messages", {list_field("messages")}, {{"role"}, {"content"}}};
}

Dialect sharegpt_dialect() {
  return {"sharegpt", {list_field("conversations")}, {{"from"}, {"value"}}};
}

/// As data::structured; what is broken is for the reader of all records to say.
data::OrderedJson list_in(const data::OrderedJson& value, const std::string& name) {
  try {
    return data::structured(value, name, name);
  } catch (const core::Error&) {
    return {};
  }
}

/// Whether the record's conversation is written down like this. One without messages tells nothing;
/// turns in columns of their own are of the format "chat".
bool is_of(const Dialect& dialect, const data::OrderedJson& record, const Columns& columns) {
  if (!columns.turns.empty())
    return dialect.name == "chat" && record.contains(columns.turns.front());
  const FieldNames names = FieldNames::chosen(columns, dialect.fields);
  const auto has_any = [](const data::OrderedJson& message, const std::vector<std::string>& names) {
    return std::ranges::any_of(names,
                               [&](const std::string& name) { return message.contains(name); });
  };
  for (const Column& column : lists_of(dialect, columns)) {
    const auto there = record.find(column.name);
    if (there == record.end()) continue;
    const data::OrderedJson list = list_in(*there, column.name);
    if (!list.is_array() || list.empty()) continue;
    const data::OrderedJson& first = list.front();
    return first.is_object() && has_any(first, names.role);
  }
  return false;
}

data::Format detected(const Dialect& dialect) {
  data::Format format = format_of(dialect);
  format.fits = [dialect](const data::OrderedJson& record, const Columns& columns) {
    return is_of(dialect, record, columns) ? data::Fit::strong : data::Fit::no;
  };
  return format;
}

}  // namespace

data::Format format() {
  data::Format format = format_of(any_dialect());
  format.fits = [](const data::OrderedJson& record, const Columns& columns) {
    const bool is_other =
        is_of(messages_dialect(), record, columns) || is_of(sharegpt_dialect(), record, columns);
    const bool fits = !is_other && is_of(any_dialect(), record, columns);
    return fits ? data::Fit::strong : data::Fit::no;
  };
  return format;
}

data::Format messages() {
  return detected(messages_dialect());
}

data::Format qwen() {
  return format_of({"qwen", {list_field("conversations")}, {{"from"}, {"value"}}});
}

data::Format sharegpt() {
  return detected(sharegpt_dialect());
}

}  // namespace finetune::formats::chat
