// SPDX-License-Identifier: Apache-2.0
#include "formats/completion/completion.hpp"

#include <memory>
#include <utility>

#include "data/records/fields.hpp"
#include "data/text/detect_format.hpp"
#include "data/text/record_reader.hpp"

namespace finetune::formats::completion {
namespace {

using data::Column;

class CompletionReader final : public data::RecordReader {
 public:
  CompletionReader(const std::filesystem::path& path, const data::Columns& columns)
      : data::RecordReader(path),
        prompt_(Column::of(columns.prompt, "prompt", "data.prompt_column")),
        answer_(Column::of(columns.answer, "completion", "data.answer_column")),
        system_(Column::of(columns.system, "system", "data.system_column")) {}

 private:
  void read(std::int64_t i, data::Sample& sample) const override {
    const core::Json record = records().object(i);
    const std::string prompt = data::text_field(record, prompt_, sample.where);
    const std::string answer = data::text_field(record, answer_, sample.where);
    const std::string system = data::optional_text_field(record, system_, sample.where);
    auto& messages = sample.conversation.messages;
    if (!system.empty()) messages.push_back({data::ChatRole::system, system, {}, {}});
    messages.push_back({data::ChatRole::user, prompt, {}, {}});
    messages.push_back({data::ChatRole::assistant, answer, {}, {}});
    sample.segments = {{system.empty() ? prompt : system + "\n\n" + prompt, false}, {answer, true}};
  }

  Column prompt_;
  Column answer_;
  Column system_;
};

}  // namespace

data::Format format() {
  data::Format format{"completion", data::Layout::separate,
                      data::open_record_files<CompletionReader>};
  format.fits = [](const core::Json& record, const data::Columns& columns) {
    const bool fits = data::has_column(record, columns.prompt, "prompt") &&
                      data::has_column(record, columns.answer, "completion");
    return fits ? data::Fit::strong : data::Fit::no;
  };
  return format;
}

}  // namespace finetune::formats::completion
