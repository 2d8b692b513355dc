// SPDX-License-Identifier: Apache-2.0
#include "formats/alpaca/alpaca.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "data/records/fields.hpp"
#include "data/text/detect_format.hpp"
#include "data/text/record_reader.hpp"

namespace finetune::formats::alpaca {
namespace {

using data::Column;

class AlpacaReader final : public data::RecordReader {
 public:
  AlpacaReader(const std::filesystem::path& path, const data::Columns& columns)
      : data::RecordReader(path),
        instruction_(Column::of(columns.prompt, "instruction", "data.prompt_column")),
        input_(Column::of(columns.input, "input", "data.input_column")),
        output_(Column::of(columns.answer, "output", "data.answer_column")),
        system_(Column::of(columns.system, "system", "data.system_column")) {}

 private:
  void read(std::int64_t i, data::Sample& sample) const override {
    const core::Json record = records().object(i);
    const std::string instruction = data::text_field(record, instruction_, sample.where);
    const std::string input = data::optional_text_field(record, input_, sample.where);
    const std::string output = data::text_field(record, output_, sample.where);
    const std::string system = data::optional_text_field(record, system_, sample.where);
    auto& messages = sample.conversation.messages;
    std::string prompt = alpaca_prompt(instruction, input);
    if (!system.empty()) {
      prompt = system + "\n\n" + prompt;
      messages.push_back({data::ChatRole::system, system, {}, {}});
    }
    messages.push_back(
        {data::ChatRole::user, input.empty() ? instruction : instruction + "\n" + input, {}, {}});
    messages.push_back({data::ChatRole::assistant, output, {}, {}});
    sample.segments = {{std::move(prompt), false}, {output, true}};
  }

  Column instruction_;
  Column input_;
  Column output_;
  Column system_;
};

}  // namespace

data::Format format() {
  data::Format format{"alpaca", data::Layout::separate, data::open_record_files<AlpacaReader>};
  format.fits = [](const core::Json& record, const data::Columns& columns) {
    const bool fits = data::has_column(record, columns.prompt, "instruction") &&
                      data::has_column(record, columns.answer, "output");
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
