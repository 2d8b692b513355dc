// SPDX-License-Identifier: Apache-2.0
#include "formats/alpaca/alpaca.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "data/records/fields.hpp"
#include "data/text/columns.hpp"
#include "data/text/record_reader.hpp"
#include "data/text/record_template.hpp"

namespace finetune::formats::alpaca {
namespace {

using data::Column;
using data::Columns;
using data::FieldText;

constexpr data::Field instruction_field{"instruction", &Columns::prompt, "data.prompt_column"};
constexpr data::Field input_field{"input", &Columns::input, "data.input_column"};
constexpr data::Field output_field{"output", &Columns::answer, "data.answer_column"};
constexpr data::Field system_field{"system", &Columns::system, "data.system_column"};

class AlpacaReader final : public data::RecordReader {
 public:
  AlpacaReader(const std::filesystem::path& path, const Columns& columns)
      : data::RecordReader(path),
        instruction_(FieldText::prompt(columns, instruction_field)),
        input_(data::column_of(columns, input_field)),
        output_(FieldText::answer(columns, output_field)),
        system_(data::column_of(columns, system_field)) {}

 private:
  void read(std::int64_t i, data::Sample& sample) const override {
    const core::Json record = records().object(i);
    // A template writes all of the prompt.
    const bool is_written = instruction_.is_written();
    const std::string instruction = instruction_.read(records(), i, record, sample.where);
    const std::string input =
        is_written ? "" : data::optional_text_field(record, input_, sample.where);
    const std::string output = output_.read(records(), i, record, sample.where);
    const std::string system = data::optional_text_field(record, system_, sample.where);
    auto& messages = sample.conversation.messages;
    std::string prompt = is_written ? instruction : alpaca_prompt(instruction, input);
    if (!system.empty()) {
      prompt = system + "\n\n" + prompt;
      messages.push_back({data::ChatRole::system, system, {}, {}});
    }
    messages.push_back(
        {data::ChatRole::user, input.empty() ? instruction : instruction + "\n" + input, {}, {}});
    messages.push_back({data::ChatRole::assistant, output, {}, {}});
    sample.segments = {{std::move(prompt), false}, {output, true}};
  }

  FieldText instruction_;
  Column input_;
  FieldText output_;
  Column system_;
};

}  // namespace

data::Format format() {
  data::Format format{"alpaca", data::Layout::separate, data::open_record_files<AlpacaReader>};
  format.fields = {instruction_field, input_field, output_field, system_field};
  format.prompt_fields = {instruction_field.name, input_field.name};
  format.answer_fields = {output_field.name};
  format.fits = [](const core::Json& record, const Columns& columns) {
    const bool fits =
        data::has_column(record, columns, instruction_field) &&
        (!columns.answer_template.empty() || data::has_column(record, columns, output_field));
    return fits ? data::Fit::strong : data::Fit::no;
  };
  return format;
}

std::string alpaca_prompt(std::string_view instruction, std::string_view input) {
  if (input.empty()) {
    return fmt::format(
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\n{}\n\n### Response:\n",
        instruction);
  }
  return fmt::format(
      "Below is an instruction that describes a task, paired with an input that provides further "
      "context. Write a response that appropriately completes the request.\n\n"
      "### Instruction:\n{}\n\n### Input:\n{}\n\n### Response:\n",
      instruction, input);
}

}  // namespace finetune::formats::alpaca
