// SPDX-License-Identifier: Apache-2.0
#include "formats/completion/completion.hpp"

#include <memory>
#include <utility>

#include "data/records/fields.hpp"
#include "data/text/columns.hpp"
#include "data/text/record_reader.hpp"
#include "data/text/record_template.hpp"
#include "formats/chat/message.hpp"

namespace finetune::formats::completion {
namespace {

using data::Column;
using data::Columns;
using data::FieldText;

constexpr data::Field prompt_field{"prompt", &Columns::prompt, "data.prompt_column"};
constexpr data::Field answer_field{"completion", &Columns::answer, "data.answer_column"};
constexpr data::Field system_field{"system", &Columns::system, "data.system_column"};

class CompletionReader final : public data::RecordReader {
 public:
  CompletionReader(const std::filesystem::path& path, const Columns& columns)
      : data::RecordReader(path),
        prompt_(FieldText::prompt(columns, prompt_field)),
        answer_(FieldText::answer(columns, answer_field)),
        prompt_column_(data::column_of(columns, prompt_field)),
        answer_column_(data::column_of(columns, answer_field)),
        system_(data::column_of(columns, system_field)),
        tools_(data::column_of(columns, chat::tools_field)),
        kwargs_(data::column_of(columns, chat::kwargs_field)),
        names_(chat::FieldNames::chosen(columns, {{"role"}, {"content"}})),
        oddities_(left_out_of(
            std::vector{prompt_column_.name, answer_column_.name, tools_.name, kwargs_.name})) {}

 private:
  void read(std::int64_t i, data::Sample& sample) const override {
    const data::OrderedJson record = records().object(i);
    if (record.contains(kwargs_.name) || kwargs_.chosen)
      sample.conversation.template_kwargs =
          chat::kwargs_beside(records(), record, kwargs_, sample.where);
    // Beside texts it may mean anything.
    const bool is_chat = has_messages(record);
    if (is_chat || tools_.chosen)
      sample.conversation.tools = chat::tools_beside(records(), record, tools_, sample.where);
    if (is_chat) {
      sample.oddities = oddities_;
      read_conversation(record, sample);
      return;
    }
    const std::string prompt = prompt_.read(record, sample.where);
    const std::string answer = answer_.read(record, sample.where);
    const std::string system = data::optional_text_field(record, system_, sample.where);
    auto& messages = sample.conversation.messages;
    if (!system.empty()) messages.push_back({data::ChatRole::system, system, {}, {}});
    messages.push_back({data::ChatRole::user, prompt, {}, {}});
    messages.push_back({data::ChatRole::assistant, answer, {}, {}});
    sample.segments = {{system.empty() ? prompt : system + "\n\n" + prompt, false}, {answer, true}};
  }

  static bool is_messages(const data::OrderedJson& record, const FieldText& field,
                          const Column& column) {
    const auto value = record.find(column.name);
    return !field.is_written() && value != record.end() && value->is_array() && !value->empty() &&
           value->front().is_object();
  }

  /// Whether prompt or answer is a list of messages.
  bool has_messages(const data::OrderedJson& record) const {
    return is_messages(record, prompt_, prompt_column_) ||
           is_messages(record, answer_, answer_column_);
  }

  /// What the prompt's messages say is given: none of it is trained.
  void read_conversation(const data::OrderedJson& record, data::Sample& sample) const {
    const std::string system = data::optional_text_field(record, system_, sample.where);
    auto& messages = sample.conversation.messages;
    if (!system.empty()) messages.push_back({data::ChatRole::system, system});
    add(data::ChatRole::user, prompt_, prompt_column_, record, sample);
    for (data::ChatMessage& message : messages)
      message.trained = false;
    add(data::ChatRole::assistant, answer_, answer_column_, record, sample);
  }

  void add(data::ChatRole role, const FieldText& field, const Column& column,
           const data::OrderedJson& record, data::Sample& sample) const {
    if (!is_messages(record, field, column))
      sample.conversation.messages.push_back({role, field.read(record, sample.where)});
    else
      chat::add_messages(chat::messages_of(records(), record.at(column.name), names_), names_,
                         column.name, sample.where, sample.conversation);
  }

  FieldText prompt_;
  FieldText answer_;
  Column prompt_column_;
  Column answer_column_;
  Column system_;
  Column tools_;
  Column kwargs_;
  chat::FieldNames names_;
  std::uint32_t oddities_;  ///< of every sample with messages
};

}  // namespace

data::Format format() {
  data::Format format{"completion", data::Layout::separate,
                      data::open_record_files<CompletionReader>};
  format.reads_messages = true;
  format.fields = {prompt_field, answer_field, system_field, chat::tools_field, chat::kwargs_field};
  format.prompt_fields = {prompt_field.name};
  format.answer_fields = {answer_field.name};
  format.fits = [](const data::OrderedJson& record, const Columns& columns) {
    // Of what a template writes any field may be a part; an instruction is Alpaca's.
    const bool fits_prompt = columns.prompt_template.empty()
                                 ? data::has_column(record, columns, prompt_field)
                                 : !record.contains("instruction");
    const bool fits = fits_prompt && (!columns.answer_template.empty() ||
                                      data::has_column(record, columns, answer_field));
    return fits ? data::Fit::strong : data::Fit::no;
  };
  return format;
}

}  // namespace finetune::formats::completion
