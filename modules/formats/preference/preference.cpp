// SPDX-License-Identifier: Apache-2.0
#include "formats/preference/preference.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/records/fields.hpp"
#include "data/text/detect_format.hpp"
#include "data/text/record_reader.hpp"
#include "formats/chat/message.hpp"

namespace finetune::formats::preference {
namespace {

using data::Column;

class PreferenceReader final : public data::RecordReader {
 public:
  PreferenceReader(const std::filesystem::path& path, const data::Columns& columns)
      : data::RecordReader(path),
        prompt_(Column::of(columns.prompt, "prompt", "data.prompt_column")) {}

 private:
  void read(std::int64_t i, data::Sample& sample) const override {
    const core::Json record = records().object(i);
    const data::OrderedJson ordered = records().ordered(i);
    data::Answer chosen = answer(record, ordered, {"chosen", ""}, sample.where);
    sample.segments = std::move(chosen.segments);
    sample.conversation = std::move(chosen.conversation);
    sample.rejected = answer(record, ordered, {"rejected", ""}, sample.where);
  }

  /// The prompt, if the record has one of its own, and the answer behind it.
  data::Answer answer(const core::Json& record, const data::OrderedJson& ordered,
                      const Column& column, const std::string& where) const {
    const core::Json& value = data::field(record, column, where);
    const core::Json* prompt = data::find_field(record, prompt_, where);
    data::Answer made;
    if (value.is_string()) {
      const std::string before =
          prompt == nullptr ? "" : data::text_of(*prompt, prompt_.name, where);
      made.segments = {{before + value.get<std::string>(), false}};
      return made;
    }
    if (prompt != nullptr && prompt->is_array())
      add_messages(ordered.at(prompt_.name), prompt_.name, where, made.conversation);
    else if (prompt != nullptr && value.is_array() && value.size() == 1)
      made.conversation.messages.push_back(
          {data::ChatRole::user, data::text_of(*prompt, prompt_.name, where), {}, {}});
    add_messages(ordered.at(column.name), column.name, where, made.conversation);
    return made;
  }

  void add_messages(const data::OrderedJson& list, const std::string& name,
                    const std::string& where, data::Conversation& conversation) const {
    if (!list.is_array() || list.empty())
      core::fail(
          core::ErrorKind::input,
          {where, fmt::format("field \"{}\" is of type {}", core::one_line(name), list.type_name()),
           "an answer is a text, or a list of messages", "Correct it."});
    std::size_t number = 0;
    for (const data::OrderedJson& each : list) {
      const std::string at = fmt::format("{}: field \"{}\": message {}", where, name, ++number);
      auto message = chat::read_message(each, {{"role"}, {"content"}}, at);
      if (!message)
        core::fail(core::ErrorKind::input,
                   {at, "has an unknown role", "what it answers would be left out", "Correct it."});
      conversation.messages.push_back(*std::move(message));
    }
  }

  Column prompt_;
};

}  // namespace

data::Format format() {
  data::Format format{"preference", data::Layout::separate,
                      data::open_record_files<PreferenceReader>};
  format.has_pairs = true;
  return format;
}

}  // namespace finetune::formats::preference
