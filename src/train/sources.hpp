#pragma once
// SPDX-License-Identifier: Apache-2.0
// The data sets that the deck names, opened.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/text_source.hpp"
#include "data/tokenizer.hpp"
#include "train/input.hpp"

namespace finetune::train {

enum class DataPart { training, validation };

/// Opens the files of data.path or data.validation_path, in the order of the deck.
/// Throws: ErrorKind::input for a path that is not there, a file that cannot be read, a model
/// without a known chat template where one is needed.
std::vector<std::unique_ptr<data::TextSource>> open_sources(const Input& input,
                                                            const Registry& registry,
                                                            const data::Tokenizer& tokenizer,
                                                            DataPart part);

/// Validation samples as questions with answers.
class Questions {
 public:
  explicit Questions(std::vector<std::unique_ptr<data::TextSource>> sources)
      : sources_(std::move(sources)) {}

  std::int64_t size() const;
  /// 0 <= i < size(). Nothing if the sample trains nothing.
  std::optional<data::Question> question(std::int64_t i) const;
  /// Tokens that end an answer.
  std::vector<std::int32_t> stop_ids() const;

 private:
  std::vector<std::unique_ptr<data::TextSource>> sources_;
};

}  // namespace finetune::train
