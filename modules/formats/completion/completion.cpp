// SPDX-License-Identifier: Apache-2.0
#include "formats/completion/completion.hpp"

#include <memory>
#include <utility>

#include "data/records/fields.hpp"
#include "data/text/columns.hpp"
#include "data/text/record_reader.hpp"
#include "data/text/record_template.hpp"

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
        system_(data::column_of(columns, system_field)) {}

 private:
  void read(std::int64_t i, data::Sample& sample) const override {
    const core::Json record = records().object(i);
    const std::string prompt = prompt_.read(records(), i, record, sample.where);
    const std::string answer = answer_.read(records(), i, record, sample.where);
    const std::string system = data::optional_text_field(record, system_, sample.where);
    auto& messages = sample.conversation.messages;
    if (!system.empty()) messages.push_back({data::ChatRole::system, system, {}, {}});
    messages.push_back({data::ChatRole::user, prompt, {}, {}});
    messages.push_back({data::ChatRole::assistant, answer, {}, {}});
    sample.segments = {{system.empty() ? prompt : system + "\n\n" + prompt, false}, {answer, true}};
  }

  FieldText prompt_;
  FieldText answer_;
  Column system_;
};

}  // namespace

data::Format format() {
  data::Format format{"completion", data::Layout::separate,
                      data::open_record_files<CompletionReader>};
  format.fields = {prompt_field, answer_field, system_field};
  format.prompt_fields = {prompt_field.name};
  format.answer_fields = {answer_field.name};
  format.fits = [](const core::Json& record, const Columns& columns) {
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
