// SPDX-License-Identifier: Apache-2.0
#include "formats/alpaca/alpaca.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
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

/// What was asked and answered before: [[question, answer], ...].
constexpr data::Field history_field{"history"};

class AlpacaReader final : public data::RecordReader {
 public:
  AlpacaReader(const std::filesystem::path& path, const Columns& columns)
      : data::RecordReader(path),
        instruction_(FieldText::prompt(columns, instruction_field)),
        input_(data::column_of(columns, input_field)),
        output_(FieldText::answer(columns, output_field)),
        system_(data::column_of(columns, system_field)),
        history_(data::column_of(columns, history_field)) {}

 private:
  void read(std::int64_t i, data::Sample& sample) const override {
    const data::OrderedJson record = records().object(i);
    // A template writes all of the prompt.
    const bool is_written = instruction_.is_written();
    const std::string instruction = instruction_.read(record, sample.where);
    const std::string input =
        is_written ? "" : data::optional_text_field(record, input_, sample.where);
    const std::string output = output_.read(record, sample.where);
    const std::string system = data::optional_text_field(record, system_, sample.where);
    auto& messages = sample.conversation.messages;
    std::string prompt = is_written ? instruction : alpaca_prompt(instruction, input);
    if (!system.empty()) {
      prompt = system + "\n\n" + prompt;
      messages.push_back({data::ChatRole::system, system, {}, {}});
    }
    const bool has_history = add_history(record, sample);
    messages.push_back(
        {data::ChatRole::user, input.empty() ? instruction : instruction + "\n" + input, {}, {}});
    messages.push_back({data::ChatRole::assistant, output, {}, {}});
    // Stanford Alpaca has no words for what came before: a template writes it.
    if (!has_history) sample.segments = {{std::move(prompt), false}, {output, true}};
  }

  /// Whether there was any.
  bool add_history(const data::OrderedJson& record, data::Sample& sample) const {
    const data::OrderedJson* found = data::find_field(record, history_, sample.where);
    if (found == nullptr || (found->is_string() && found->get_ref<const std::string&>().empty()))
      return false;
    const data::OrderedJson turns = data::structured(*found, history_.name, sample.where);
    const auto is_pair = [](const data::OrderedJson& turn) {
      return turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
    };
    if (!turns.is_array() || !std::ranges::all_of(turns, is_pair))
      core::fail(core::ErrorKind::input,
                 {sample.where,
                  fmt::format("field \"{}\" is no list of pairs", core::one_line(history_.name)),
                  "what was said before is [[question, answer], ...], of texts",
                  "Correct it, or name another field in data.columns.history."});
    for (const data::OrderedJson& turn : turns) {
      sample.conversation.messages.push_back({data::ChatRole::user, turn[0].get<std::string>()});
      sample.conversation.messages.push_back(
          {data::ChatRole::assistant, turn[1].get<std::string>()});
    }
    return !turns.empty();
  }

  FieldText instruction_;
  Column input_;
  FieldText output_;
  Column system_;
  Column history_;
};

}  // namespace

data::Format format() {
  data::Format format{"alpaca", data::Layout::separate, data::open_record_files<AlpacaReader>};
  format.fields = {instruction_field, input_field, output_field, system_field, history_field};
  format.prompt_fields = {instruction_field.name, input_field.name};
  format.answer_fields = {output_field.name};
  format.fits = [](const data::OrderedJson& record, const Columns& columns) {
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
