// SPDX-License-Identifier: Apache-2.0
#include "formats/alpaca/alpaca.hpp"

#include <fmt/format.h>

#include <memory>

#include "data/files.hpp"
#include "data/json_records.hpp"

namespace finetune::formats::alpaca {
namespace {

class AlpacaReader final : public data::Reader {
 public:
  explicit AlpacaReader(const std::filesystem::path& path) : records_(path) {}

  std::int64_t size() const override { return records_.size(); }

  data::Sample sample(std::int64_t i) const override {
    const core::Json record = records_.object(i);
    const std::string where = records_.where(i);
    const std::string instruction = data::required_text(record, "instruction", where);
    const std::string input = data::optional_text(record, "input", where);
    return {{{alpaca_prompt(instruction, input), false},
             {data::required_text(record, "output", where), true}},
            where};
  }

 private:
  data::JsonRecords records_;
};

}  // namespace

data::Format format() {
  const auto open = [](const std::filesystem::path& path) {
    return data::open_files(path, {".json", ".jsonl"}, [](const std::filesystem::path& file) {
      return std::make_unique<AlpacaReader>(file);
    });
  };
  return {"alpaca", data::Layout::separate, open};
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
