// SPDX-License-Identifier: Apache-2.0
#include "formats/preference/preference.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "data/records/fields.hpp"
#include "data/text/columns.hpp"
#include "data/text/record_reader.hpp"
#include "data/text/record_template.hpp"
#include "formats/chat/message.hpp"

namespace finetune::formats::preference {
namespace {

using data::Column;
using data::Columns;

constexpr data::Field prompt_field{"prompt", &Columns::prompt, "data.prompt_column"};
constexpr data::Field chosen_field{"chosen"};
constexpr data::Field rejected_field{"rejected"};

class PreferenceReader final : public data::RecordReader {
 public:
  PreferenceReader(const std::filesystem::path& path, const Columns& columns)
      : data::RecordReader(path),
        prompt_(data::column_of(columns, prompt_field)),
        chosen_(data::column_of(columns, chosen_field)),
        rejected_(data::column_of(columns, rejected_field)),
        tools_(data::column_of(columns, chat::tools_field)),
        kwargs_(data::column_of(columns, chat::kwargs_field)),
        names_(chat::FieldNames::chosen(columns, {{"role"}, {"content"}})),
        oddities_(left_out_of(
            std::vector{prompt_.name, chosen_.name, rejected_.name, tools_.name, kwargs_.name})) {
    if (!columns.prompt_template.empty())
      template_.emplace(columns.prompt_template, "data.prompt_template");
  }

 private:
  void read(std::int64_t i, data::Sample& sample) const override {
    sample.oddities = oddities_;
    const data::OrderedJson record = records().object(i);
    // A prompt as the template writes it stands where the record's own would.
    data::OrderedJson written;
    if (template_) written = template_->write(data::names_of(record), sample.where);
    const data::OrderedJson* prompt =
        template_ ? &written : data::find_field(record, prompt_, sample.where);
    data::Answer chosen = answer(record, prompt, chosen_, sample.where);
    sample.segments = std::move(chosen.segments);
    sample.conversation = std::move(chosen.conversation);
    sample.rejected = answer(record, prompt, rejected_, sample.where);
    // Beside texts it may mean anything.
    if (tools_.chosen || !sample.conversation.messages.empty() ||
        !sample.rejected->conversation.messages.empty())
      sample.conversation.tools = sample.rejected->conversation.tools =
          chat::tools_beside(records(), record, tools_, sample.where);
    sample.conversation.template_kwargs = sample.rejected->conversation.template_kwargs =
        chat::kwargs_beside(records(), record, kwargs_, sample.where);
  }

  /// The prompt, if the record has one of its own, and the answer behind it.
  data::Answer answer(const data::OrderedJson& record, const data::OrderedJson* prompt,
                      const Column& column, const std::string& where) const {
    const data::OrderedJson& value = data::field(record, column, where);
    data::Answer made;
    if (value.is_string()) {
      const std::string before =
          prompt == nullptr ? "" : data::text_of(*prompt, prompt_.name, where);
      made.segments = {{before + value.get<std::string>(), false}};
      return made;
    }
    if (template_ && value.is_array() && value.size() > 1)
      core::fail(
          core::ErrorKind::input,
          {where,
           fmt::format("field \"{}\" has {} messages", core::one_line(column.name), value.size()),
           "data.prompt_template writes what stands in front of one answer",
           "Remove data.prompt_template, or give the answer alone."});
    if (prompt != nullptr && prompt->is_array())
      chat::add_messages(chat::messages_of(records(), record.at(prompt_.name), names_), names_,
                         prompt_.name, where, made.conversation);
    else if (prompt != nullptr && value.is_array() && value.size() == 1)
      made.conversation.messages.push_back(
          {data::ChatRole::user, data::text_of(*prompt, prompt_.name, where), {}, {}});
    chat::add_messages(chat::messages_of(records(), record.at(column.name), names_), names_,
                       column.name, where, made.conversation);
    return made;
  }

  Column prompt_, chosen_, rejected_, tools_, kwargs_;
  chat::FieldNames names_;
  std::uint32_t oddities_;
  std::optional<data::RecordTemplate> template_;
};

}  // namespace

data::Format format() {
  data::Format format{"preference", data::Layout::separate,
                      data::open_record_files<PreferenceReader>};
  format.has_pairs = true;
  format.reads_messages = true;
  format.fields = {prompt_field, chosen_field, rejected_field, chat::tools_field,
                   chat::kwargs_field};
  format.prompt_fields = {prompt_field.name};
  return format;
}

}  // namespace finetune::formats::preference
